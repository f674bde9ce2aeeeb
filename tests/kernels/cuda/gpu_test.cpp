#include "kernels/cuda/device.hpp"

#include "kernels/cuda/gpus.hpp"
#include "tests/kernels/cuda/device_checks.hpp"
#include "tests/kernels/numeric.hpp"
#include "tests/support/skip.hpp"

#include <boost/test/unit_test.hpp>

#include <memory>

// Tests that the simulator cannot replace: a GPU and cuBLAS compute the same.

using namespace troupe;
using namespace troupe::test;

namespace {

/// The first GPU; null, and the case is skipped, if there is none.
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
  constexpr std::size_t m = 67;
  constexpr std::size_t n = 33;
  constexpr std::size_t k = 129;
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true}) {
      const auto a = random_values(2 * m * k, "a");
      const auto b = random_values(2 * k * n, "b");
      const std::vector<float> left(a.begin(), a.end());
      const std::vector<float> right(b.begin(), b.end());
      std::vector<double> expected(2 * m * n);
      for (std::size_t i = 0; i < expected.size(); ++i)
        for (std::size_t p = 0; p < k; ++p) {
          const auto row = i / n % m;
          const auto column = i % n;
          const auto first = i / (m * n);
          expected[i] += a[first * m * k + (transpose_a ? p * m + row : row * k + p)]
            * b[first * k * n + (transpose_b ? column * k + p : p * n + column)];
        }
      const cuda::buffer<float> da(*gpu, left.size());
      const cuda::buffer<float> db(*gpu, right.size());
      const cuda::buffer<float> dc(*gpu, expected.size());
      const auto where = gpu->main_stream();
      gpu->copy_in(where, da.data(), left.data(), da.bytes());
      gpu->copy_in(where, db.data(), right.data(), db.bytes());
      gpu->multiply(where, {m, n, k, transpose_a, transpose_b, da.data(), db.data(), dc.data(), 2});
      std::vector<float> result(expected.size());
      gpu->copy_out(where, result.data(), dc.data(), dc.bytes());
      gpu->synchronize(where);
      // 129 roundings of 2^-24, of sums of at most 129 products of a few units.
      check_close(result, expected, 1e-5, 1e-4, "product");
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
  check_training(*gpu, m, 5);
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
  check_training(*gpu, m, 4);
}

BOOST_AUTO_TEST_CASE(types_of_16_bits) {
  const auto gpu = open_or_skip();
  if (!gpu)
    return;
  model dense;
  build_classifier(dense);
  check_mixed(*gpu, dense, 5);
  model network;
  build_network(network);
  check_mixed(*gpu, network, 4);
}

// Each set of feeds is used often enough to be recorded.
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
    check_workers(*cuda::make_gpus(cuda::open_device));
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
  check_attention(*gpu);
  check_recurrence(*gpu);
}

BOOST_AUTO_TEST_SUITE_END()
