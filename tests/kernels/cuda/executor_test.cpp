#include "kernels/cuda/executor.hpp"

#include "kernels/cuda/gpus.hpp"
#include "kernels/error.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"
#include "kernels/graph/sparse_operations.hpp"
#include "tests/kernels/cuda/device_checks.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

#include <memory>
#include <stdexcept>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(cuda_executor)

BOOST_AUTO_TEST_CASE(dense_models_are_those_of_the_cpu) {
  model m;
  build_classifier(m);
  simulated_device gpu;
  check_against_cpu(gpu, m, 5);
}

// With normal numbers as weights, sums are about a hundred, and the normalization keeps their
// errors.
BOOST_AUTO_TEST_CASE(convolutional_networks_are_those_of_the_cpu) {
  model m;
  build_network(m);
  simulated_device gpu;
  check_against_cpu(gpu, m, 4, 2e-5);
}

BOOST_AUTO_TEST_CASE(regression_and_two_classes) {
  simulated_device gpu;
  check_regression(gpu);
}

BOOST_AUTO_TEST_CASE(same_input_same_bits) {
  model m;
  build_classifier(m);
  m.draw(33, 5);
  simulated_device gpu;
  cuda::executor there(gpu, m.plan_for(cuda::gpu_plan_options(), 33));
  const auto before = gpu.allocations();
  const auto first = run(m, there);
  BOOST_TEST(gpu.allocations() == before); // in a run, no memory is allocated
  in_all_orders([&] {
    const auto again = run(m, there);
    BOOST_TEST(again.result.loss == first.result.loss);
    BOOST_TEST(same_bits(again.gradient, first.gradient));
  });
}

// A recording contains no seeds and no pointers of the host. Each number of rows has its own
// recording.
BOOST_AUTO_TEST_CASE(recorded_runs_compute_what_others_do) {
  simulated_device gpu;
  model m;
  build_classifier(m);
  cuda::executor there(gpu, m.plan_for(cuda::gpu_plan_options(), 33));
  cuda::executor by_step(gpu, m.plan_for(cuda::gpu_plan_options(), 33));
  for (std::uint64_t round = 0; round < 3; ++round)
    for (const std::size_t rows : {33, 7, 0}) {
      m.draw(rows, 5, round);
      const auto feeds = m.feeds();
      const auto pointers = m.pointers();
      run_arguments<float> arguments;
      arguments.rows = rows;
      arguments.weights = pointers;
      arguments.feeds = feeds;
      arguments.seed = round;
      const auto result = there.run(arguments);
      std::vector<float> expected(m.g.parameters().size());
      arguments.gradient = expected;
      const auto same = by_step.run(arguments);
      BOOST_TEST(result.loss == same.loss);
      BOOST_TEST(result.correct == same.correct);
      BOOST_TEST(result.counted == same.counted);
      std::vector<float> gradient(expected.size());
      gpu.copy_out({}, gradient.data(), there.gradient().data(), gradient.size() * sizeof(float));
      BOOST_TEST(same_bits(gradient, expected));
    }
  BOOST_TEST(gpu.recordings() == 3U);
}

BOOST_AUTO_TEST_CASE(training_steps_of_a_dense_model) {
  model m;
  build_classifier(m);
  simulated_device gpu;
  check_training(gpu, m, 5);
}

BOOST_AUTO_TEST_CASE(training_steps_of_a_convolutional_network) {
  model m;
  build_network(m);
  simulated_device gpu;
  check_training(gpu, m, 4);
}

BOOST_AUTO_TEST_CASE(workers_share_a_gpu) {
  check_workers(*cuda::make_gpus([](std::size_t) { return std::make_unique<simulated_device>(); }));
}

BOOST_AUTO_TEST_CASE(losses_that_are_constants_or_weights) {
  simulated_device gpu;
  model m;
  m.loss = sum(m.g.variable("w", {3}));
  check_against_cpu(gpu, m, 2);
  model constant;
  constant.g.variable("w", {2});
  constant.loss = constant.g.constant(2.5);
  check_against_cpu(gpu, constant, 2);
}

BOOST_AUTO_TEST_CASE(what_it_refuses) {
  simulated_device gpu;
  model m;
  const auto x = m.g.placeholder("x", {shape::batch, 9}, dtype::sparse);
  m.fetches = {sparse_matmul(x, m.g.variable("w", {9, 2}))};
  const auto text = error_of([&] { cuda::executor(gpu, m.plan_for(cuda::gpu_plan_options(), 4)); });
  BOOST_TEST(contains(text, "a GPU cannot compute sparse_matmul yet; use a CPU for this model"));
  model backward;
  backward.fetches = {reverse(backward.g.placeholder("x", {shape::batch, 9}), 1)};
  BOOST_TEST(
    contains(error_of([&] { cuda::executor(gpu, backward.plan_for(cuda::gpu_plan_options(), 4)); }),
             "a GPU cannot compute reverse yet"));

  model dense;
  build_classifier(dense);
  dense.draw(3, 5);
  cuda::executor there(gpu, dense.plan_for(cuda::gpu_plan_options(), 4));
  const auto feeds = dense.feeds();
  run_arguments<float> arguments;
  arguments.feeds = feeds;
  arguments.rows = 5;
  BOOST_CHECK_THROW(there.run(arguments), std::invalid_argument);
  arguments.rows = 3;
  std::vector<const float*> one(1);
  arguments.weights = one;
  BOOST_CHECK_THROW(there.run(arguments), std::invalid_argument);
  arguments.weights = {};
  std::vector<float> short_gradient(3);
  arguments.gradient = short_gradient;
  BOOST_CHECK_THROW(there.run(arguments), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(memory_is_known_before_it_is_allocated) {
  for (const auto build : {build_classifier, build_network}) {
    model m;
    build(m);
    simulated_device gpu;
    const auto what = m.plan_for(cuda::gpu_plan_options(), 8);
    const cuda::executor there(gpu, what);
    BOOST_TEST(gpu.allocated_bytes() == cuda::executor::memory_bytes(*what));
  }
}

BOOST_AUTO_TEST_SUITE_END()
