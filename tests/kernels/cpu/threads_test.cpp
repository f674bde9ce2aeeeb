#include "kernels/cpu/executor.hpp"
#include "kernels/cpu/thread_team.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"
#include "tests/kernels/numeric.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/effort.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr auto batch = shape::batch;

/// What a run with some number of threads has computed.
struct outcome {
  double loss = 0;
  std::vector<float> gradient;
  bool allocated = false;

  bool operator==(const outcome&) const = default;
};

/// True if both have the same bits. With OpenBLAS, it is enough that values are close, because the
/// bits depend on how a product is divided among threads and parts. (The random layers of these
/// models enlarge rounding errors, to 0.25 % of the largest gradient. A wrong row would differ by
/// much more.)
bool same(const outcome& x, const outcome& y) {
#ifdef TROUPE_OPENBLAS
  float largest = 0;
  for (const float value : y.gradient)
    largest = std::max(largest, std::abs(value));
  const auto close = [largest](float a, float b) { return std::abs(a - b) <= 1e-2F * largest; };
  return std::abs(x.loss - y.loss) <= 1e-4 * std::abs(y.loss)
    && std::ranges::equal(x.gradient, y.gradient, close);
#else
  return x == y;
#endif
}

/// Builds a model that reads images or sequences of ids. Returns its logits.
using model = std::function<expression(expression images, expression ids)>;

struct trained {
  /// Enough rows to divide most instructions among threads.
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

  /// Cuts a weight into random parts of whole rows. Each part gets its own memory.
  void cut(std::size_t weight, random_stream& random) {
    const auto& entry = g.parameters().entries()[weight];
    const auto width = static_cast<std::size_t>(entry.shape.last());
    range rest{0, entry.size / width};
    while (!rest.empty()) {
      const auto size = rest.size() < 4 ? rest.size() : 2 + random.below(rest.size() - 3);
      const range part{rest.begin, rest.begin + size};
      pieces.emplace_back(weights[weight].begin() + static_cast<std::ptrdiff_t>(part.begin * width),
                          weights[weight].begin() + static_cast<std::ptrdiff_t>(part.end * width));
      parts.push_back({weight, part, pieces.back().data()});
      rest.begin = part.end;
    }
    std::ranges::fill(weights[weight], std::numeric_limits<float>::quiet_NaN());
  }

  std::shared_ptr<const plan> make_plan() const {
    auto options = cpu_plan_options();
    options.max_rows = rows;
    options.loss = loss;
    options.gradients = true;
    return std::make_shared<const plan>(g, options);
  }

  outcome run(std::size_t threads) {
    executor<float> x(make_plan(), threads);
    outcome result;
    result.gradient.resize(g.parameters().size());
    std::vector<const float*> pointers;
    for (const auto& w : weights)
      pointers.push_back(w.data());
    const std::array<feed<float>, 3> feeds{features.data(), words.data(), targets.data()};
    run_arguments<float> arguments;
    arguments.rows = rows;
    arguments.weights = pointers;
    arguments.parts = parts;
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
  std::deque<std::vector<float>> pieces;
  std::vector<weight_rows<float>> parts;
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
    BOOST_TEST(same(several, one), threads << " threads: other bits than one");
  }
}

/// Cuts all weights that may be stored in several parts, and checks that the bits stay the same.
/// `names` are the names of these weights.
void check_cuts(const model& build, const std::vector<std::string>& names) {
  trained x(build);
  const auto expected = x.run(1);
  random_stream random{7};
  for (int i = 0; i < 20; ++i) {
    trained cut(build);
    std::vector<std::string> found;
    const auto& entries = cut.g.parameters().entries();
    for (std::size_t weight = 0; weight < entries.size(); ++weight)
      if (may_be_cut(*cut.make_plan(), weight)) {
        found.push_back(entries[weight].name);
        cut.cut(weight, random);
      }
    BOOST_TEST(found == names, boost::test_tools::per_element{});
    for (const std::size_t threads : {1, 3})
      BOOST_TEST(same(cut.run(threads), expected), threads << " threads, cuts " << i);
  }
}

} // namespace

BOOST_AUTO_TEST_SUITE(threads)

BOOST_AUTO_TEST_CASE(rows_of_weights_in_several_places) {
  check_cuts(
    [](expression images, expression) {
      const auto h = dense_layer(flatten(images), "dense_1", 200, activation::relu);
      return dense_layer(dense_layer(h, "dense_2", 3, activation::tanh), "dense_3", 10);
    },
    {"dense_1.weight", "dense_2.weight", "dense_3.weight"});
  // Two weights are not cut. `wide.weight` has a single column, because `narrow` has one unit, and
  // products with a single column are added up in another order. The weights between time steps are
  // packed once for all time steps.
  check_cuts(
    [](expression, expression ids) {
      auto& g = ids.owner();
      const auto table = g.variable("table", {10, 48});
      const auto other = g.variable("other", {10, 8});
      const auto x = concat(
        {recurrent_layer(embedding(table, ids), "recurrent", 48, cell::rnn), embedding(other, ids)},
        2);
      const auto narrow = dense_layer(reshape(x, {batch, 12 * 56}), "narrow", 1);
      return matmul(dense_layer(narrow, "wide", 48), table, false, true);
    },
    {"table", "other", "recurrent.weight_ih_l0", "narrow.weight"});
}

BOOST_AUTO_TEST_CASE(each_does_its_part_once) {
  for (std::size_t size : {1, 2, 5}) {
    thread_team team(size);
    BOOST_TEST(team.size() == size);
    std::array<std::atomic<int>, 5> calls{};
    // The sums are not atomic. After `run`, this thread must see what the other threads wrote.
    std::array<int, 5> sums{};
    const int runs = static_cast<int>(tries(2000));
    for (int i = 0; i < runs; ++i)
      team.run([&](std::size_t index) {
        ++calls[index];
        ++sums[index];
      });
    for (std::size_t i = 0; i < calls.size(); ++i) {
      BOOST_TEST(calls[i] == (i < size ? runs : 0));
      BOOST_TEST(sums[i] == (i < size ? runs : 0));
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

// Attention with many heads and several blocks of queries. The keys come from another tensor than
// the queries.
BOOST_AUTO_TEST_CASE(attention_of_many_heads) {
  check_threads([](expression images, expression) {
    const auto x = reshape(images, {batch, 50, 36});
    const auto q = dense_layer(x, "q", 36);
    const auto kv = slice(dense_layer(x, "kv", 72), 1, 0, 37);
    const auto keys = slice(kv, 2, 0, 36);
    const auto y = multi_head_attention(q, keys, slice(kv, 2, 36, 72), 6, false);
    return dense_layer(reshape(y, {batch, 1800}), "dense_1", 10);
  });
}

BOOST_AUTO_TEST_SUITE_END()
