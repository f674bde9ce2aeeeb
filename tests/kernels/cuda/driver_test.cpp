#include "kernels/cuda/cublas.hpp"
#include "kernels/cuda/cuda_errors.hpp"
#include "kernels/cuda/device.hpp"

#include <boost/test/unit_test.hpp>

#include <string>

// This program contains the CUDA runtime. Without a driver, the runtime reports that the driver is
// missing.

using namespace troupe;

BOOST_AUTO_TEST_SUITE(cuda_driver)

BOOST_AUTO_TEST_CASE(a_gpu_that_is_not_there_is_a_typed_error) {
  try {
    cuda::open_device(999);
    BOOST_ERROR("GPU 999 was opened");
  } catch (const cuda::device_error& e) {
    const std::string text = e.what();
    const bool no_driver = text.starts_with("no driver for NVIDIA GPUs was found");
    const bool old_driver = text.starts_with("the driver for NVIDIA GPUs is too old");
    const bool no_device = text.starts_with("there is no GPU 999: this machine has ");
    BOOST_TEST((no_driver || old_driver || no_device), text);
  }
}

// Loads cuBLAS if it is installed. Without a driver, cuBLAS does not start.
BOOST_AUTO_TEST_CASE(cublas_that_does_not_start_is_a_typed_error) {
  try {
    const cuda::cublas products({}, nullptr);
  } catch (const cuda::device_error& e) {
    const std::string text = e.what();
    const bool missing = text.starts_with("cuBLAS cannot be loaded: ");
    const bool fails = text.starts_with("cuBLAS: it does not start: ");
    BOOST_TEST((missing || fails), text);
    BOOST_TEST_MESSAGE(text);
  }
}

// Error 700 is an illegal address. Error 2 means out of memory, and other calls succeed after it.
BOOST_AUTO_TEST_CASE(faults_that_last_say_what_to_do) {
  BOOST_TEST(cuda::explain_cuda(700).ends_with("cannot use the GPU any more: restart it"));
  BOOST_TEST(cuda::explain_cuda(2) == "out of memory");
  cuda::check_cuda(0, "nothing");
  const auto right = [](const cuda::device_error& e) {
    return std::string(e.what()) == "a copy: " + cuda::explain_cuda(700);
  };
  BOOST_CHECK_EXCEPTION(cuda::check_cuda(700, "a copy"), cuda::device_error, right);
  // The text is built only for an error.
  std::size_t built = 0;
  const auto text = [&] {
    ++built;
    return std::string("a copy");
  };
  cuda::check_cuda(0, text);
  BOOST_TEST(built == 0U);
  BOOST_CHECK_EXCEPTION(cuda::check_cuda(700, text), cuda::device_error, right);
  BOOST_TEST(built == 1U);
}

// All calls of the driver report that memory is too small in the same way as an allocation. With a
// driver, the text also says how much is free.
BOOST_AUTO_TEST_CASE(calls_that_need_memory) {
  BOOST_CHECK_EXCEPTION(cuda::check_cuda(2, "a CUDA graph"), cuda::device_error, [](const auto& e) {
    const std::string text = e.what();
    return text.starts_with("a CUDA graph: out of memory of the GPU")
      && text.ends_with(". Use a smaller batch or model, or end other programs");
  });
  BOOST_TEST(cuda::explain_out_of_memory("of a test", 5'000'000)
               .starts_with("out of memory of the GPU of a test: 5 MB are needed at once"));
}

BOOST_AUTO_TEST_SUITE_END()
