#include "kernels/cuda/executor.hpp"

#include "kernels/cpu/operation_table.hpp"
#include "kernels/cuda/gpus.hpp"
#include "kernels/cuda/operation_table.hpp"
#include "kernels/graph/channel_operations.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"
#include "tests/kernels/cuda/device_checks.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/kernels/cuda/sizes.hpp"
#include "tests/kernels/cuda/stream_orders.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <vector>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(cuda_executor)

BOOST_AUTO_TEST_CASE(dense_models_are_those_of_the_cpu) {
  with_all_devices([](simulated_device& gpu) {
    model m;
    build_classifier(m);
    check_against_cpu(gpu, m, 5);
  });
}

// All biases begin at multiples of 16 bytes (see has_epilogue), so the products of all four layers
// get an epilogue, which adds the bias. In the first two layers, the epilogue also computes the
// ReLU. In the third layer, it does not compute the GELU. The matrix products of the backward pass
// have no bias, so they get no epilogue.
BOOST_AUTO_TEST_CASE(layers_with_epilogues_are_those_of_the_cpu) {
  with_all_devices([](simulated_device& gpu) {
    for (const bool epilogues : {true, false}) {
      gpu.has_epilogues = epilogues;
      model m;
      const auto x = m.g.placeholder("x", {shape::batch, 12});
      const auto labels = m.g.placeholder("labels", {shape::batch}, dtype::int32);
      auto h = dense_layer(x, "a", 16, activation::relu);
      h = dense_layer(h, "b", 8, activation::relu);
      const auto logits = dense_layer(dense_layer(h, "c", 8, activation::gelu), "d", 4);
      m.loss = softmax_cross_entropy(logits, labels);
      m.fetches = {logits};
      m.draw(9, 4);
      cuda::executor there(gpu, m.plan_for(cuda::gpu_plan_options(), 9));
      const auto before = gpu.epilogues();
      run(m, there);
      BOOST_TEST(gpu.epilogues() - before == (epilogues ? 4U : 0U));
      check_against_cpu(gpu, m, 4);
      check_mixed(gpu, m, 4);
    }
  });
}

// The weights are drawn from a normal distribution, so sums are about a hundred. Errors are
// relative to these sums, and the normalization does not reduce them.
BOOST_AUTO_TEST_CASE(convolutional_networks_are_those_of_the_cpu) {
  with_all_devices([](simulated_device& gpu) {
    model m;
    build_network(m);
    check_against_cpu(gpu, m, 4, 2e-5);
  });
}

BOOST_AUTO_TEST_CASE(regression_and_two_classes) {
  with_all_devices([](simulated_device& gpu) { check_regression(gpu); });
}

// run_result::correct is the number of correct samples only if the plan requests it
// (plan_options::correct). A fetch of this number is not enough.
BOOST_AUTO_TEST_CASE(only_the_requested_value_counts_correct_samples) {
  graph g;
  const auto logits = g.placeholder("logits", {shape::batch, 2});
  const auto logit = g.placeholder("logit", {shape::batch, 1});
  const auto labels = g.placeholder("labels", {shape::batch}, dtype::int32);
  leaves values;
  values.rows = 3;
  values.feeds = {{0, 1, 1, 0, 0, 1}, {1, -1, 1}, {1, 0, 0}};
  simulated_device gpu;
  for (const auto& fetch : {softmax_correct(logits, labels), binary_correct(logit, labels)}) {
    const auto fetched = execute_on(gpu, g, values, {}, {fetch}, false);
    BOOST_TEST(fetched.fetches[0][0] == 2);
    BOOST_TEST(fetched.correct == 0U);
    BOOST_TEST(fetched.counted == 0U);
    const auto counted = execute_on(gpu, g, values, {}, {fetch}, false, fetch);
    BOOST_TEST(counted.correct == 2U);
    BOOST_TEST(counted.counted == 3U);
  }
}

// The planner limits the length of a step (planner::longest_chain). These models have the largest
// steps that it makes. The step of the first round has the most inputs, and the step of the second
// round has the most temporaries.
BOOST_AUTO_TEST_CASE(the_longest_chains_fit_in_a_kernel) {
  for (const bool many_inputs : {true, false}) {
    model m;
    int count = 0;
    const auto leaf = [&] {
      return m.g.placeholder("x" + std::to_string(count++), {shape::batch, 3});
    };
    const auto chain = [&] {
      auto result = many_inputs ? leaf() : tanh(leaf());
      for (int i = 0; i < (many_inputs ? 16 : 5); ++i)
        result =
          many_inputs ? select(leaf(), leaf(), result) : select(tanh(leaf()), tanh(leaf()), result);
      return result;
    };
    const auto first = chain();
    const auto second = chain();
    m.fetches = {select(first, second, chain())};
    const auto what = m.plan_for(cuda::gpu_plan_options(), 2);
    BOOST_TEST_REQUIRE(what->instructions().size() == 1U);
    const auto& x = what->instructions()[0];
    BOOST_TEST(x.program.size() == 49U);
    BOOST_TEST(x.inputs.size() == (many_inputs ? 99U : 33U));
    BOOST_TEST(x.temporaries == (many_inputs ? 3U : 13U));
    simulated_device gpu;
    check_against_cpu(gpu, m, 2);
  }
}

BOOST_AUTO_TEST_CASE(same_input_same_bits) {
  with_all_devices([](simulated_device& gpu) {
    model m;
    build_classifier(m);
    m.draw(33, 5);
    cuda::executor there(gpu, m.plan_for(cuda::gpu_plan_options(), 33));
    const auto before = gpu.allocations();
    const auto first = run(m, there);
    BOOST_TEST(gpu.allocations() == before); // a run allocates no memory
    in_all_orders([&] {
      const auto again = run(m, there);
      BOOST_TEST(again.result.loss == first.result.loss);
      BOOST_TEST(same_bits(again.gradient, first.gradient));
    });
  });
}

// Three numbers of rows run in three rounds, each with and without copies of the gradient to the
// host. Without copies, the recordings contain the norm. The first run of each of these six
// combinations is not recorded.
BOOST_AUTO_TEST_CASE(recorded_runs_compute_what_others_do) {
  with_all_devices([](simulated_device& gpu) {
    check_recordings(gpu);
    BOOST_TEST(gpu.recordings() > 6U);
    BOOST_TEST(gpu.replays() == (3 - 1) * gpu.recordings());
  });
}

BOOST_AUTO_TEST_CASE(training_steps_of_a_dense_model) {
  with_all_devices([](simulated_device& gpu) {
    model m;
    build_classifier(m);
    check_training(gpu, m, 5);
  });
}

BOOST_AUTO_TEST_CASE(training_steps_of_a_convolutional_network) {
  model m;
  build_network(m);
  simulated_device gpu{1};
  check_training(gpu, m, 4);
}

BOOST_AUTO_TEST_CASE(workers_share_a_gpu) {
  with_all_orders([](std::optional<std::uint64_t> seed) {
    check_workers(
      *cuda::make_gpus([seed](std::size_t) { return std::make_unique<simulated_device>(seed); }));
  });
}

BOOST_AUTO_TEST_CASE(losses_that_are_constants_or_weights) {
  with_all_devices([](simulated_device& gpu) {
    model m;
    m.loss = sum(m.g.variable("w", {3}));
    check_against_cpu(gpu, m, 2);
    model constant;
    constant.g.variable("w", {2});
    constant.loss = constant.g.constant(2.5);
    check_against_cpu(gpu, constant, 2);
  });
}

// The values of a constant are in memory that the executor frees again. The GPU may read it late.
BOOST_AUTO_TEST_CASE(constants_are_copied_before_their_memory_is_freed) {
  simulated_device gpu{0}; // all work runs when the host waits
  gpu.reads_late = true;
  model m;
  const auto w = m.g.variable("w", {8});
  const auto constant = [&](double first) {
    std::vector<double> values(8);
    std::iota(values.begin(), values.end(), first);
    return m.g.constant(values, {8});
  };
  m.loss = sum(multiply(multiply(w, constant(1)), constant(-3)));
  check_against_cpu(gpu, m, 2);
}

BOOST_AUTO_TEST_CASE(a_gpu_computes_every_operation_of_the_cpu) {
  for (std::size_t i = 0; i < operation_count; ++i) {
    const auto op = static_cast<operation>(i);
    BOOST_TEST((cuda::row_of(op).run != nullptr) == (cpu::row_of<float>(op).run != nullptr),
               to_string(op));
  }
}

namespace {

/// A model with a normalization of rows and one of images. They use the samples of all workers, or
/// only the worker's own samples.
void build_normalized(model& m, bool all_workers) {
  auto& g = m.g;
  const auto x = g.placeholder("x", {shape::batch, 4});
  const auto norm = [&](expression y, const std::string& name) {
    const shape dims{y.shape()[1]};
    const auto state = parameter_kind::state;
    return batch_norm(y,
                      {g.variable(name + ".gain", dims), g.variable(name + ".bias", dims),
                       g.variable(name + ".mean", dims, {}, state),
                       g.variable(name + ".variance", dims, {}, state)},
                      1e-5, all_workers);
  };
  auto y = dense(x, g.variable("w1", {18, 4}), g.variable("b1", {18}));
  y = norm(reshape(tanh(norm(y, "rows")), {shape::batch, 3, 2, 3}), "images");
  const auto z = dense(flatten(tanh(y)), g.variable("w2", {2, 18}), g.variable("b2", {2}));
  m.loss = sum(multiply(z, z));
}

/// Runs workers together. Of the batch, the first worker has the first rows[0] rows, the second
/// worker has the next rows[1] rows, and so on.
template <class Executor>
std::vector<std::vector<float>> run_together(const model& m, std::vector<Executor>& workers,
                                             const std::vector<std::size_t>& rows) {
  std::vector<std::vector<float>> gradients(workers.size(),
                                            std::vector<float>(m.g.parameters().size()));
  const auto pointers = m.pointers();
  std::size_t stops = 0;
  for (bool done = false; !done;) {
    std::vector<double> totals;
    std::size_t first = 0;
    for (std::size_t i = 0; i < workers.size(); ++i) {
      const std::vector<feed<float>> feeds{m.floats[0].data() + 4 * first};
      first += rows[i];
      const auto on_sums = [&](std::span<const double> x) {
        totals.resize(x.size());
        std::ranges::transform(totals, x, totals.begin(), std::plus{});
      };
      run_arguments<float> arguments;
      arguments.rows = rows[i];
      arguments.weights = pointers;
      arguments.feeds = feeds;
      arguments.gradient = gradients[i];
      arguments.on_sums = on_sums;
      done = workers[i].advance(arguments).has_value();
      // A worker asks for the sums once, and then waits.
      BOOST_TEST((done || !workers[i].advance(arguments)));
    }
    if (done)
      break;
    ++stops;
    for (auto& x : workers)
      x.give_sums(totals, first);
  }
  BOOST_TEST(stops == 4U);
  return gradients;
}

/// Begins a run, gives it the first sums for which it waits, and abandons it.
void abandon(const model& m, cuda::executor& there, std::size_t rows) {
  const std::vector<feed<float>> feeds{m.floats[0].data()};
  const auto pointers = m.pointers();
  std::vector<float> gradient(m.g.parameters().size());
  std::vector<double> sums;
  const auto on_sums = [&](std::span<const double> x) { sums.assign(x.begin(), x.end()); };
  run_arguments<float> arguments;
  arguments.rows = rows;
  arguments.weights = pointers;
  arguments.feeds = feeds;
  arguments.gradient = gradient;
  arguments.on_sums = on_sums;
  BOOST_TEST(!there.advance(arguments));
  there.give_sums(sums, rows);
  there.restart();
}

} // namespace

// If the gradient stays on the device, the run ends a segment only before it needs sums: four
// times. The second run of a number of rows records the five segments.
BOOST_AUTO_TEST_CASE(segments_of_a_gradient_that_stays) {
  with_all_devices([](simulated_device& gpu) {
    model m;
    build_normalized(m, true);
    m.draw(16, 2);
    const auto what = m.plan_for(cuda::gpu_plan_options(), 16);
    BOOST_TEST(what->buckets().size() > 1U);
    cuda::executor there(gpu, what);
    const auto feeds = m.feeds();
    const auto pointers = m.pointers();
    for (int i = 0; i < 3; ++i) {
      const auto recordings = gpu.recordings();
      const auto replays = gpu.replays();
      std::vector<double> sums;
      const auto on_sums = [&](std::span<const double> x) { sums.assign(x.begin(), x.end()); };
      run_arguments<float> arguments;
      arguments.rows = 16;
      arguments.weights = pointers;
      arguments.feeds = feeds;
      arguments.on_sums = on_sums;
      while (!there.advance(arguments))
        there.give_sums(sums, 16);
      BOOST_TEST(gpu.recordings() == recordings + (i == 1 ? 5 : 0));
      BOOST_TEST(gpu.replays() == replays + (i == 0 ? 0 : 5));
    }
  });
}

BOOST_AUTO_TEST_CASE(normalization_over_all_workers) {
  with_all_devices([](simulated_device& gpu) {
    model m;
    build_normalized(m, true);
    const auto on_gpu = m.plan_for(cuda::gpu_plan_options(), 33);
    const auto on_cpu = m.plan_for(cpu_plan_options(), 33);
    for (const auto& rows : std::vector<std::vector<std::size_t>>{{33}, {5, 28}, {7, 0, 9}}) {
      m.draw(rows.size() == 3 ? 16 : 33, 2);
      std::vector<cuda::executor> there;
      std::vector<troupe::executor<float>> here;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        there.emplace_back(gpu, on_gpu);
        here.emplace_back(on_cpu);
      }
      abandon(m, there[0], rows[0]);
      auto fewer = rows; // the first worker has the same number of rows, but the total differs
      fewer.back() -= 4;
      for (const auto& now : {rows, fewer, rows}) {
        const auto actual = run_together(m, there, now);
        const auto expected = run_together(m, here, now);
        for (std::size_t i = 0; i < rows.size(); ++i) {
          double largest = 1e-3;
          for (const float x : expected[i])
            largest = std::max(largest, std::fabs(static_cast<double>(x)));
          check_close(actual[i], as_doubles(expected[i]), 2e-5, 2e-5 * largest,
                      "gradient of worker " + std::to_string(i));
        }
      }
    }
    // One worker with all samples gives the same results as a run without sums.
    m.draw(33, 2);
    check_against_cpu(gpu, m, 2, 2e-5);
    cuda::executor alone(gpu, on_gpu);
    BOOST_CHECK_THROW(alone.give_sums({}, 3), std::invalid_argument);
  });
}

BOOST_AUTO_TEST_CASE(what_it_refuses) {
  with_all_devices([](simulated_device& gpu) {
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
  });
}

BOOST_AUTO_TEST_CASE(memory_is_known_before_it_is_allocated) {
  for (const auto build : {build_classifier, build_network}) {
    model m;
    build(m);
    simulated_device gpu;
    const auto what = m.plan_for(cuda::gpu_plan_options(), 8);
    const cuda::executor there(gpu, what);
    BOOST_TEST(gpu.allocated_bytes() == cuda::executor::memory_bytes(*what));
    BOOST_TEST(gpu.pinned_bytes() == cuda::executor::pinned_bytes(*what));
    BOOST_TEST(cuda::product_bytes(*what) == 2 * cuda::product_space_bytes);
  }
}

// The memory of the GPU includes the work space of the libraries for products, if a plan needs it.
BOOST_AUTO_TEST_CASE(work_space_of_products_is_counted) {
  const auto bytes = [](bool product, bool bias) {
    model m;
    const auto x = m.g.placeholder("x", {shape::batch, 4});
    auto y = x;
    if (product)
      y = matmul(x, m.g.variable("w", {4, 4}));
    if (bias)
      y = dense(x, m.g.variable("w", {4, 4}), m.g.variable("b", {4}));
    m.loss = sum(multiply(y, y));
    simulated_device gpu;
    const auto what = m.plan_for(cuda::gpu_plan_options(), 8);
    const cuda::executor there(gpu, what);
    BOOST_TEST(gpu.allocated_bytes() == cuda::executor::memory_bytes(*what));
    return cuda::product_bytes(*what);
  };
  BOOST_TEST(bytes(false, false) == 0U);
  BOOST_TEST(bytes(true, false) == std::size_t{32} << 20);
  BOOST_TEST(bytes(false, true) == std::size_t{64} << 20);
}

BOOST_AUTO_TEST_SUITE_END()
