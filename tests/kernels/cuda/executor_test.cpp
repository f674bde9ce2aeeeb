#include "kernels/cuda/executor.hpp"

#include "kernels/cuda/reductions.hpp"
#include "kernels/cuda/updates.hpp"
#include "kernels/error.hpp"
#include "kernels/graph/channel_operations.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sparse_operations.hpp"
#include "kernels/optimizers/optimizer.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/kernels/cuda/sizes.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

#include <memory>
#include <stdexcept>

using namespace troupe;
using namespace troupe::test;

namespace {

/// A model with random leaves, for a plan of each device.
struct model {
  model() = default;
  model(const model&) = delete; // expressions point to the graph
  model& operator=(const model&) = delete;

  graph g;
  expression loss;
  expression correct;
  std::vector<expression> fetches;
  leaves values;
  std::vector<std::vector<float>> weights;
  std::vector<std::vector<float>> floats;
  std::vector<std::vector<std::int32_t>> labels;

  std::shared_ptr<const plan> plan_for(plan_options options, std::size_t max_rows) const {
    options.max_rows = max_rows;
    options.loss = loss;
    options.correct = correct;
    options.fetches = fetches;
    options.gradients = loss.valid();
    options.bucket_bytes = 256;
    return std::make_shared<const plan>(g, options);
  }

  void draw(std::size_t rows, std::int64_t classes, std::uint64_t salt = 0) {
    values = random_leaves(g, rows, classes, salt);
    weights.clear();
    for (const auto& x : values.weights)
      weights.emplace_back(x.begin(), x.end());
    floats.assign(values.feeds.size(), {});
    labels.assign(values.feeds.size(), {});
    for (std::size_t i = 0; i < values.feeds.size(); ++i) {
      const auto& x = values.feeds[i];
      if (g.at(g.placeholders()[i]).type == dtype::int32)
        labels[i].assign(x.begin(), x.end());
      else
        floats[i].assign(x.begin(), x.end());
    }
  }

  std::vector<feed<float>> feeds() const {
    std::vector<feed<float>> result;
    for (std::size_t i = 0; i < floats.size(); ++i)
      result.push_back(labels[i].empty() ? feed<float>(floats[i].data())
                                         : feed<float>(labels[i].data()));
    return result;
  }
  std::vector<const float*> pointers() const {
    std::vector<const float*> result;
    for (const auto& x : weights)
      result.push_back(x.data());
    return result;
  }
};

/// A classifier 37-29-17-5 that uses most of what dense models have.
void build_classifier(model& m) {
  const auto x = m.g.placeholder("x", {shape::batch, 37});
  const auto labels = m.g.placeholder("labels", {shape::batch}, dtype::int32);
  const auto h = dropout(dense_layer(x, "dense_1", 29, activation::relu), 0.2, "drop");
  const auto k = dense_layer(h, "dense_2", 17, activation::tanh);
  const auto logits =
    dense_layer(dense_layer(k, "dense_3", 17, activation::gelu) + k, "dense_4", 5);
  m.loss = softmax_cross_entropy(logits, labels) + 0.01 * sum(multiply(k, k));
  m.correct = softmax_correct(logits, labels);
  m.fetches = {logits, softmax(logits), sum_last(k)};
}

/// Convolutions, batch normalization, both kinds of pooling: (batch, 3, 10, 9) to 4 classes.
void build_network(model& m) {
  auto& g = m.g;
  const auto x = g.placeholder("x", {shape::batch, 3, 10, 9});
  const auto labels = g.placeholder("labels", {shape::batch}, dtype::int32);
  const auto h = conv2d(x, g.variable("conv_1.weight", {8, 3, 3, 3}), {3, 3, 1, 1, 1, 1});
  const auto normal = batch_norm(h,
                                 {g.variable("gain", {8}), g.variable("bias", {8}),
                                  g.variable("mean", {8}, {}, parameter_kind::state),
                                  g.variable("variance", {8}, {}, parameter_kind::state)});
  const auto pooled = max_pool(relu(normal), {2, 2, 2, 2});
  const auto k = conv2d_layer(pooled, "conv_2", 6, {3, 3, 1, 1, 1, 1, 2}, activation::tanh);
  const auto logits = dense_layer(flatten(average_pool(k, {2, 2, 2, 2})), "dense", 4);
  m.loss = softmax_cross_entropy(logits, labels, {0.1, std::nullopt});
  m.correct = softmax_correct(logits, labels);
  m.fetches = {logits};
}

struct results {
  run_result result;
  std::vector<float> gradient;
  std::vector<std::vector<float>> fetched;
  std::vector<std::size_t> buckets;
};

template <class Executor>
results run(const model& m, Executor& executor) {
  results out;
  out.gradient.resize(executor.what().has_gradients() ? m.g.parameters().size() : 0);
  const auto feeds = m.feeds();
  const auto pointers = m.pointers();
  run_arguments<float> arguments;
  arguments.rows = m.values.rows;
  arguments.weights = pointers;
  arguments.feeds = feeds;
  arguments.seed = 7;
  arguments.gradient = out.gradient;
  const auto on_bucket = [&](std::size_t i) { out.buckets.push_back(i); };
  arguments.on_bucket = on_bucket;
  out.result = executor.run(arguments);
  for (std::size_t i = 0; i < m.fetches.size(); ++i) {
    const auto x = executor.fetched(i);
    out.fetched.emplace_back(x.begin(), x.end());
  }
  return out;
}

/// Sums in another order, in double instead of float: so many roundings of 2^-24, relative to the
/// largest element of a tensor.
void check_same(const results& gpu, const results& cpu, double tolerance = 2e-6) {
  const auto scale = [](const std::vector<float>& x) {
    double result = 1e-3;
    for (const auto v : x)
      result = std::max(result, std::abs(static_cast<double>(v)));
    return result;
  };
  check_close(std::vector{gpu.result.loss}, std::vector{cpu.result.loss}, tolerance, tolerance,
              "loss");
  BOOST_TEST(gpu.result.correct == cpu.result.correct);
  BOOST_TEST(gpu.result.counted == cpu.result.counted);
  BOOST_TEST(gpu.buckets == cpu.buckets, boost::test_tools::per_element());
  check_close(gpu.gradient, as_doubles(cpu.gradient), tolerance, tolerance * scale(cpu.gradient),
              "gradient");
  for (std::size_t i = 0; i < cpu.fetched.size(); ++i)
    check_close(gpu.fetched[i], as_doubles(cpu.fetched[i]), tolerance,
                tolerance * scale(cpu.fetched[i]), "fetch " + std::to_string(i));
}

/// Runs on both, with every number of rows.
void check_against_cpu(model& m, std::int64_t classes, double tolerance = 2e-6) {
  constexpr std::size_t max_rows = 33;
  simulated_device gpu;
  cuda::executor there(gpu, m.plan_for(cuda::gpu_plan_options(), max_rows));
  troupe::executor<float> here(m.plan_for(cpu_plan_options(), max_rows));
  for (const std::size_t rows : {33, 0, 1, 7}) {
    m.draw(rows, classes);
    check_same(run(m, there), run(m, here), tolerance);
  }
}

/// Five steps on both, whose weights, gradients and state stay on the device.
void check_training(model& m, std::int64_t classes) {
  for (const auto kind : {optimizer_kind::nesterov, optimizer_kind::adamw}) {
    m.draw(33, classes);
    simulated_device gpu;
    cuda::executor there(gpu, m.plan_for(cuda::gpu_plan_options(), 33));
    troupe::executor<float> here(m.plan_for(cpu_plan_options(), 33));
    const auto n = m.g.parameters().size();
    optimizer rule;
    rule.kind = kind;
    rule.weight_decay = 0.01F;
    std::vector<float> w;
    for (const auto& x : m.weights)
      w.insert(w.end(), x.begin(), x.end());
    std::vector<float> state(rule.slots() * n);
    std::vector<float> gradient(n);
    const device_array<float> device_state(state);
    gpu.copy_in({}, there.weights().data(), w.data(), n * sizeof(float));
    const auto before = gpu.allocations();
    for (std::uint64_t step = 1; step <= 5; ++step) {
      m.draw(33, classes, step); // other feeds; its weights are not used
      const auto feeds = m.feeds();
      std::vector<const float*> pointers;
      for (const auto& entry : m.g.parameters().entries())
        pointers.push_back(w.data() + entry.offset);
      run_arguments<float> arguments;
      arguments.rows = 33;
      arguments.feeds = feeds;
      arguments.seed = step;
      const auto device_loss = there.run(arguments).loss;
      arguments.weights = pointers;
      arguments.gradient = gradient;
      const auto loss = here.run(arguments).loss;
      check_close(std::vector{device_loss}, std::vector{loss}, 1e-5, 1e-5, "loss");
      const update_arguments<float> update_here{.weights = w,
                                                .gradient = gradient,
                                                .state = state,
                                                .updated = w,
                                                .rate = 0.01,
                                                .scale = 1.0 / 33,
                                                .step = step};
      auto update_there = update_here;
      update_there.weights = there.weights();
      update_there.gradient = there.gradient();
      update_there.state = {device_state.data(), state.size()};
      update_there.updated = there.weights();
      update<float>(rule, update_here);
      cuda::update(there.where(), rule, update_there, nullptr);
    }
    BOOST_TEST(gpu.allocations() == before);
    std::vector<float> result(n);
    gpu.copy_out({}, result.data(), there.weights().data(), n * sizeof(float));
    // AdamW divides by the root of a mean of squares: an element whose gradients nearly cancel
    // moves by a step of the rate's size with a relative error of these gradients.
    check_close(result, as_doubles(w), 1e-5, kind == optimizer_kind::adamw ? 1e-4 : 1e-6,
                "weights after five steps");
  }
}

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_executor)

BOOST_AUTO_TEST_CASE(dense_models_are_those_of_the_cpu) {
  model m;
  build_classifier(m);
  check_against_cpu(m, 5);
}

// Normal numbers as weights make sums of a hundred units, whose errors the normalization keeps.
BOOST_AUTO_TEST_CASE(convolutional_networks_are_those_of_the_cpu) {
  model m;
  build_network(m);
  check_against_cpu(m, 4, 2e-5);
}

BOOST_AUTO_TEST_CASE(regression_and_two_classes) {
  model m;
  const auto x = m.g.placeholder("x", {shape::batch, 9});
  const auto t = m.g.placeholder("t", {shape::batch, 1});
  const auto y = dense_layer(dense_layer(x, "hidden", 6, activation::sigmoid), "out", 1);
  m.loss = mean_squared_error(y, t);
  m.fetches = {y};
  check_against_cpu(m, 2);

  model two;
  const auto z = two.g.placeholder("x", {shape::batch, 9});
  const auto labels = two.g.placeholder("labels", {shape::batch}, dtype::int32);
  const auto logit = dense_layer(z, "out", 1);
  two.loss = binary_cross_entropy(logit, to_float(labels, {shape::batch, 1}));
  two.correct = binary_correct(logit, labels);
  check_against_cpu(two, 2);
}

BOOST_AUTO_TEST_CASE(same_input_same_bits) {
  model m;
  build_classifier(m);
  m.draw(33, 5);
  simulated_device gpu;
  cuda::executor there(gpu, m.plan_for(cuda::gpu_plan_options(), 33));
  const auto first = run(m, there);
  in_all_orders([&] {
    const auto again = run(m, there);
    BOOST_TEST(again.result.loss == first.result.loss);
    BOOST_TEST(same_bits(again.gradient, first.gradient));
  });
}

BOOST_AUTO_TEST_CASE(training_steps_of_a_dense_model) {
  model m;
  build_classifier(m);
  check_training(m, 5);
}

BOOST_AUTO_TEST_CASE(training_steps_of_a_convolutional_network) {
  model m;
  build_network(m);
  check_training(m, 4);
}

BOOST_AUTO_TEST_CASE(losses_that_are_constants_or_weights) {
  model m;
  m.loss = sum(m.g.variable("w", {3}));
  check_against_cpu(m, 2);
  model constant;
  constant.g.variable("w", {2});
  constant.loss = constant.g.constant(2.5);
  check_against_cpu(constant, 2);
}

BOOST_AUTO_TEST_CASE(what_it_refuses) {
  simulated_device gpu;
  model m;
  const auto x = m.g.placeholder("x", {shape::batch, 9}, dtype::sparse);
  m.fetches = {sparse_matmul(x, m.g.variable("w", {9, 2}))};
  const auto text = error_of([&] { cuda::executor(gpu, m.plan_for(cuda::gpu_plan_options(), 4)); });
  BOOST_TEST(contains(text, "a GPU cannot compute sparse_matmul yet; use a CPU for this model"));

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

BOOST_AUTO_TEST_CASE(memory_is_counted) {
  model m;
  build_classifier(m);
  simulated_device gpu;
  const cuda::executor there(gpu, m.plan_for(cuda::gpu_plan_options(), 8));
  BOOST_TEST(there.memory_bytes()
             >= (there.what().arena_elements() + 2 * m.g.parameters().size() + 8 * 37 + 8)
               * sizeof(float));
}

BOOST_AUTO_TEST_SUITE_END()
