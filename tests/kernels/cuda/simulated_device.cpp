#include "tests/kernels/cuda/simulated_device.hpp"

#include "kernels/cpu/executor_state.hpp"
#include "kernels/cpu/gemm.hpp"
#include "tests/kernels/cuda/simulator.hpp"

#include <cstdlib>
#include <cstring>
#include <iostream>

namespace troupe::test {

void* simulated_device::allocate(std::size_t bytes) {
  ++allocations_;
  allocated_bytes_ += bytes;
  return allocate_simulated(bytes);
}

void simulated_device::release(void* memory) noexcept {
  try {
    free_simulated(memory);
  } catch (const simulation_error& e) {
    std::cerr << e.what() << '\n';
    std::abort();
  }
}

void simulated_device::copy_in(cuda::stream, void* to, const void* from, std::size_t bytes) {
  mark_written(to, bytes);
  std::memcpy(to, from, bytes);
}

void simulated_device::copy_out(cuda::stream, void* to, const void* from, std::size_t bytes) {
  check_written(from, bytes);
  std::memcpy(to, from, bytes);
}

namespace {

void multiply_now(const cuda::product& x) {
  const auto scratch = make_aligned<float>(cpu::gemm_scratch_elements<float>());
  check_written(x.a, x.batch * x.m * x.k * sizeof(float));
  check_written(x.b, x.batch * x.k * x.n * sizeof(float));
  mark_written(x.c, x.batch * x.m * x.n * sizeof(float));
  for (std::size_t i = 0; i < x.batch; ++i) {
    cpu::matrix<float> a{x.a + i * x.m * x.k, x.transpose_a ? x.m : x.k, 1};
    cpu::matrix<float> b{x.b + i * x.k * x.n, x.transpose_b ? x.k : x.n, 1};
    cpu::gemm<float>(x.m, x.n, x.k, x.transpose_a ? a.transposed() : a,
                     x.transpose_b ? b.transposed() : b, x.c + i * x.m * x.n, x.n, scratch.get());
  }
}

} // namespace

void simulated_device::multiply(cuda::stream, const cuda::product& x) {
  submit([x] { multiply_now(x); });
}

void simulated_device::begin_recording(cuda::stream) {
  ++recordings_;
  test::begin_recording();
}

std::unique_ptr<cuda::recording> simulated_device::end_recording(cuda::stream) {
  struct kept final : cuda::recording {
    std::vector<std::function<void()>> work;
    void replay(cuda::stream) override {
      for (const auto& x : work)
        x();
    }
  };
  auto result = std::make_unique<kept>();
  result->work = test::end_recording();
  return result;
}

} // namespace troupe::test
