#include "kernels/cuda/device.hpp"

#include "kernels/cuda/conversions.hpp"
#include "kernels/cuda/dense_product.hpp"
#include "kernels/cuda/gpus.hpp"
#include "tests/kernels/cuda/device_checks.hpp"
#include "tests/kernels/numeric.hpp"
#include "tests/support/skip.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

// Tests that need a real GPU, because the simulator cannot replace it. The results of a GPU and
// cuBLAS are those of the simulator, except for rounding: cuBLAS adds up in float32, and tensor
// cores cut off bits.

using namespace troupe;
using namespace troupe::test;

namespace {

/// Opens the first GPU. If there is no GPU, skips the case and returns null.
std::unique_ptr<cuda::device> open_or_skip() {
  try {
    return cuda::open_device(0);
  } catch (const cuda::device_error& e) {
    skip(e.what());
    return nullptr;
  }
}

} // namespace

BOOST_AUTO_TEST_SUITE(gpu)

BOOST_AUTO_TEST_CASE(products_are_those_of_the_cpu) {
  const auto gpu = open_or_skip();
  if (!gpu)
    return;
  check_products(*gpu);
}

// cublasLt has an algorithm for common layers. Its results are those of a product and a second
// launch, within rounding. Its ReLU keeps NaN.
BOOST_AUTO_TEST_CASE(epilogues) {
  const auto gpu = open_or_skip();
  if (!gpu)
    return;
  const auto where = gpu->main_stream();
  constexpr std::size_t m = 64;
  constexpr std::size_t n = 128;
  constexpr std::size_t k = 256;
  const auto sent = [&](const std::vector<float>& x, dtype type) {
    const cuda::buffer<float> wide(*gpu, x.size());
    cuda::buffer<std::byte> result(*gpu, x.size() * size_of(type));
    gpu->copy_in(where, wide.data(), x.data(), wide.bytes());
    const cuda::converted one[] = {{wide.data(), dtype::float32, result.data(), type, x.size()}};
    cuda::convert(where, one);
    gpu->synchronize(where);
    return result;
  };
  const auto floats = [](std::size_t count, const char* name) {
    const auto x = random_values(count, name);
    return std::vector<float>(x.begin(), x.end());
  };
  for (const auto type : {dtype::float32, dtype::float16, dtype::bfloat16}) {
    if (!gpu->multiplies(type))
      continue;
    auto left = floats(m * k, "a");
    left[k] = std::numeric_limits<float>::quiet_NaN(); // in row 1
    const auto a = sent(left, type);
    const auto b = sent(floats(n * k, "b"), type);
    const auto bias = sent(floats(n, "bias"), dtype::float32);
    const auto c = sent(std::vector<float>(m * n), type);
    const cuda::buffer<float> space(*gpu, m * n);
    cuda::dense_product x{{.m = m,
                           .n = n,
                           .k = k,
                           .transpose_b = true,
                           .a = a.data(),
                           .b = b.data(),
                           .c = c.data(),
                           .operands = type,
                           .result = type},
                          reinterpret_cast<const float*>(bias.data()),
                          {operation::relu}};
    auto fused = x.what;
    fused.bias = space.data();
    fused.after = operation::relu;
    BOOST_TEST(gpu->fuses(fused), to_string(type));
    const auto result = [&] {
      const cuda::buffer<float> wide(*gpu, m * n);
      const cuda::converted one[] = {{c.data(), type, wide.data(), dtype::float32, m * n}};
      cuda::convert(where, one);
      std::vector<float> values(m * n);
      gpu->copy_out(where, values.data(), wide.data(), wide.bytes());
      gpu->synchronize(where);
      return values;
    };
    cuda::multiply(*gpu, where, x, space.data());
    const auto at_once = result();
    // The same layer without the function, added to the result of this one.
    auto sum = x;
    sum.last = {operation::add, c.data(), type};
    auto added = x.what;
    added.addend = c.data();
    BOOST_TEST(gpu->fuses(added), to_string(type));
    cuda::multiply(*gpu, where, sum, space.data());
    const auto in_sum = result();
    // Computes the same layer with a second launch for the epilogue, because a bias at an unaligned
    // address cannot be in an epilogue.
    const auto shifted = sent(floats(n + 1, "bias"), dtype::float32);
    gpu->copy_inside(where, shifted.data() + 4, bias.data(), n * 4);
    x.bias = reinterpret_cast<const float*>(shifted.data()) + 1;
    x.what.result = dtype::float32;
    const cuda::buffer<float> apart(*gpu, m * n);
    x.what.c = apart.data();
    cuda::multiply(*gpu, where, x, space.data());
    std::vector<float> expected(m * n);
    gpu->copy_out(where, expected.data(), apart.data(), apart.bytes());
    gpu->synchronize(where);
    x.last = {};
    cuda::multiply(*gpu, where, x, space.data());
    std::vector<float> before(m * n);
    gpu->copy_out(where, before.data(), apart.data(), apart.bytes());
    gpu->synchronize(where);
    const double rounding = type == dtype::bfloat16 ? 1.0 / 128 : 1.0 / 1024;
    for (std::size_t i = 0; i < at_once.size(); ++i) {
      const auto value = static_cast<double>(expected[i]);
      const auto both = static_cast<double>(before[i]) + static_cast<double>(at_once[i]);
      if (i / n == 1) {
        BOOST_TEST(std::isnan(at_once[i]));
        BOOST_TEST(std::isnan(in_sum[i]));
        continue;
      }
      BOOST_TEST(std::fabs(static_cast<double>(at_once[i]) - value)
                 <= rounding * (1 + std::fabs(value)));
      BOOST_TEST(std::fabs(static_cast<double>(in_sum[i]) - both)
                 <= rounding * (1 + std::fabs(both)));
    }
  }
}

BOOST_AUTO_TEST_CASE(time_passes) {
  const auto gpu = open_or_skip();
  if (!gpu)
    return;
  const auto where = gpu->main_stream();
  const cuda::buffer<float> from(*gpu, std::size_t{1} << 24);
  const cuda::buffer<float> to(*gpu, from.size());
  const auto begin = gpu->make_time_mark();
  const auto end = gpu->make_time_mark();
  begin->record(where);
  gpu->copy_inside(where, to.data(), from.data(), from.bytes());
  end->record(where);
  BOOST_TEST(end->seconds_since(*begin) > 0);
}

BOOST_AUTO_TEST_CASE(dense_models) {
  const auto gpu = open_or_skip();
  if (!gpu)
    return;
  model m;
  build_classifier(m);
  check_against_cpu(*gpu, m, 5, 1e-5);
  check_training(*gpu, m, 5, 1e-5);
}

BOOST_AUTO_TEST_CASE(recordings) {
  if (const auto gpu = open_or_skip())
    check_recordings(*gpu);
}

BOOST_AUTO_TEST_CASE(convolutional_networks) {
  const auto gpu = open_or_skip();
  if (!gpu)
    return;
  model m;
  build_network(m);
  check_against_cpu(*gpu, m, 4, 1e-4);
  check_training(*gpu, m, 4, 1e-5);
}

BOOST_AUTO_TEST_CASE(types_of_16_bits) {
  const auto gpu = open_or_skip();
  if (!gpu)
    return;
  // Where a sum is nearly 0, another rounding can change the sign of an activation, and so the
  // gradients of this sample.
  constexpr double roundings = 20;
  model dense;
  build_classifier(dense);
  check_mixed(*gpu, dense, 5, roundings);
  model network;
  build_network(network);
  check_mixed(*gpu, network, 4, roundings);
  for (const std::int64_t width : {16, 64, 128, 256}) { // of 2 heads
    model sequences;
    build_sequences(sequences, 200, width);
    check_mixed(*gpu, sequences, 4, roundings);
  }
}

// Each set of feeds is used so often that it is recorded.
BOOST_AUTO_TEST_CASE(announced_batches) {
  const auto gpu = open_or_skip();
  if (!gpu)
    return;
  model m;
  build_classifier(m);
  const auto what = m.plan_for(cuda::gpu_plan_options(), 7);
  std::vector<announcing_step> steps;
  for (std::uint64_t i = 1; i <= 8; ++i)
    steps.push_back({i, i + 1});
  auto silent = steps;
  for (auto& x : silent)
    x.next = 0;
  const auto expected = announced_steps(*gpu, what, silent);
  const auto actual = announced_steps(*gpu, what, steps);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    BOOST_TEST(same_bits(actual[i].gradient, expected[i].gradient));
    BOOST_TEST(actual[i].result.loss == expected[i].result.loss);
  }
}

BOOST_AUTO_TEST_CASE(workers) {
  if (open_or_skip())
    check_workers(*cuda::make_gpus(cuda::open_device), 1e-5);
}

BOOST_AUTO_TEST_CASE(regression) {
  const auto gpu = open_or_skip();
  if (!gpu)
    return;
  check_regression(*gpu);
}

BOOST_AUTO_TEST_CASE(convolutions) {
  const auto gpu = open_or_skip();
  if (!gpu)
    return;
  check_convolutions(*gpu);
  check_large_convolutions(*gpu);
}

BOOST_AUTO_TEST_CASE(pooling_and_channels) {
  const auto gpu = open_or_skip();
  if (!gpu)
    return;
  check_pooling(*gpu);
  check_batch_normalization(*gpu);
  check_channels(*gpu);
}

BOOST_AUTO_TEST_CASE(sequences) {
  const auto gpu = open_or_skip();
  if (!gpu)
    return;
  check_moves(*gpu);
  check_layer_normalization(*gpu);
  check_long_rows(*gpu);
  check_attention(*gpu);
  check_recurrence(*gpu);
}

BOOST_AUTO_TEST_CASE(updates_of_several_ranges) {
  if (const auto gpu = open_or_skip())
    check_updates(*gpu);
}

BOOST_AUTO_TEST_CASE(updates_of_some_elements) {
  if (const std::shared_ptr<cuda::device> gpu = open_or_skip()) {
    check_packing(*gpu);
    check_updates_of_some(gpu);
  }
}

BOOST_AUTO_TEST_SUITE_END()
