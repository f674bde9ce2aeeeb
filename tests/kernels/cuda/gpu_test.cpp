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
  check_products(*gpu);
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
