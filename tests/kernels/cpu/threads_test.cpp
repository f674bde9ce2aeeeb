#include "kernels/cpu/executor.hpp"
#include "kernels/cpu/thread_team.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"
#include "tests/kernels/numeric.hpp"
#include "tests/support/allocations.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <atomic>
#include <cmath>
#include <functional>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr auto batch = shape::batch;

/// Loss and gradient of a model, computed with a number of threads.
struct outcome {
  double loss = 0;
  std::vector<float> gradient;
  bool allocated = false;

  bool operator==(const outcome&) const = default;
};

/// A model of images or of sequences of ids: a function from one of them to logits.
using model = std::function<expression(expression images, expression ids)>;

struct trained {
  /// Enough rows to divide most instructions.
  static constexpr std::size_t rows = 96;
  static constexpr std::int64_t classes = 10;

  explicit trained(const model& build) {
    const auto images = g.placeholder("images", {batch, 2, 30, 30});
    const auto ids = g.placeholder("ids", {batch, 12}, dtype::int32);
    const auto labels = g.placeholder("labels", {batch}, dtype::int32);
    loss = softmax_cross_entropy(build(images, ids), labels);
    const auto random = random_leaves(g, rows, classes);
    for (const auto& w : random.weights)
      weights.emplace_back(w.begin(), w.end());
    features.assign(random.feeds[0].begin(), random.feeds[0].end());
    words.assign(random.feeds[1].begin(), random.feeds[1].end());
    targets.assign(random.feeds[2].begin(), random.feeds[2].end());
  }

  outcome run(std::size_t threads) {
    auto options = cpu_plan_options();
    options.max_rows = rows;
    options.loss = loss;
    options.gradients = true;
    executor<float> x(std::make_shared<const plan>(g, options), threads);
    outcome result;
    result.gradient.resize(g.parameters().size());
    std::vector<const float*> pointers;
    for (const auto& w : weights)
      pointers.push_back(w.data());
    const std::array<feed<float>, 3> feeds{features.data(), words.data(), targets.data()};
    run_arguments<float> arguments;
    arguments.rows = rows;
    arguments.weights = pointers;
    arguments.feeds = feeds;
    arguments.gradient = result.gradient;
    const auto before = allocations();
    const auto large = large_allocations();
    result.loss = x.run(arguments).loss;
    result.allocated = allocations() != before || large_allocations() != large;
    return result;
  }

  graph g;
  expression loss;
  std::vector<std::vector<float>> weights;
  std::vector<float> features;
  std::vector<std::int32_t> words;
  std::vector<std::int32_t> targets;
};

void check_threads(const model& build) {
  trained x(build);
  const auto one = x.run(1);
  BOOST_TEST(std::isfinite(one.loss));
  for (std::size_t threads : {2, 3, 7}) {
    const auto several = x.run(threads);
    BOOST_TEST(!several.allocated);
    BOOST_TEST((several == one), threads << " threads: other bits than one");
  }
}

} // namespace

BOOST_AUTO_TEST_SUITE(threads)

BOOST_AUTO_TEST_CASE(each_does_its_part_once) {
  for (std::size_t size : {1, 2, 5}) {
    thread_team team(size);
    BOOST_TEST(team.size() == size);
    std::array<std::atomic<int>, 5> calls{};
    // Plain memory: after run, the owner must see what the threads wrote.
    std::array<int, 5> sums{};
    for (int i = 0; i < 2000; ++i)
      team.run([&](std::size_t index) {
        ++calls[index];
        ++sums[index];
      });
    for (std::size_t i = 0; i < calls.size(); ++i) {
      BOOST_TEST(calls[i] == (i < size ? 2000 : 0));
      BOOST_TEST(sums[i] == (i < size ? 2000 : 0));
    }
  }
}

BOOST_AUTO_TEST_CASE(dense_layers) {
  check_threads([](expression images, expression) {
    const auto h = dense_layer(flatten(images), "dense_1", 200, activation::relu);
    return dense_layer(dense_layer(h, "dense_2", 100, activation::tanh), "dense_3", 10);
  });
}

BOOST_AUTO_TEST_CASE(images) {
  check_threads([](expression images, expression) {
    auto h = conv2d_layer(images, "conv_1", 8, {5, 5, 1, 1, 2, 2}, activation::relu);
    h = max_pool(h, {2, 2, 2, 2});
    h = conv2d_layer(h, "conv_2", 12, {3, 3, 2, 2, 1, 1}, activation::gelu);
    h = max_pool(h, {3, 3, 2, 2});
    h = conv2d_layer(h, "conv_3", 6, {3, 3, 1, 1, 1, 1, 2}, activation::sigmoid);
    return dense_layer(flatten(average_pool(h, {3, 3})), "dense_1", 10);
  });
}

BOOST_AUTO_TEST_CASE(sequences) {
  for (const auto how : {cell::rnn, cell::lstm, cell::gru})
    check_threads([how](expression, expression ids) {
      const auto table = ids.owner().variable("table", {10, 40});
      const auto h = recurrent_layer(embedding(table, ids), "recurrent", 48, how);
      return dense_layer(reshape(h, {batch, 12 * 48}), "dense_1", 10);
    });
}

BOOST_AUTO_TEST_CASE(attention) {
  check_threads([](expression, expression ids) {
    auto& g = ids.owner();
    const auto x = embedding(g.variable("table", {10, 64}), ids);
    const auto normal = layer_norm(x, g.variable("gain", {64}), g.variable("bias", {64}));
    const auto qkv = dense_layer(normal, "qkv", 192);
    const auto part = [&](std::int64_t i) { return slice(qkv, 2, 64 * i, 64 * (i + 1)); };
    const auto h = x + causal_attention(part(0), part(1), part(2), 4);
    const auto wide = dense_layer(concat({h, x}, 2), "inner", 100, activation::gelu);
    return dense_layer(reshape(wide, {batch, 1200}), "dense_1", 10);
  });
}

BOOST_AUTO_TEST_SUITE_END()
