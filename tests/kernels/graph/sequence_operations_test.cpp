#include "kernels/graph/sequence_operations.hpp"

#include "kernels/cpu/executor.hpp"
#include "kernels/devices/graph_session.hpp"
#include "kernels/error.hpp"
#include "kernels/graph/gradients.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <utility>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(sequence_operations)

namespace {

constexpr auto batch = shape::batch;

/// Makes tensors that depend on variables, so that gradients with respect to these can be checked.
struct tensors {
  graph g;
  expression features = g.placeholder("features", {batch, 3});

  expression make(const shape& dims) {
    const auto n = static_cast<std::int64_t>(dims.elements(1));
    const auto name = "w" + std::to_string(g.nodes().size());
    return reshape(dense(features, g.variable(name, {n, 3})), dims);
  }
};

} // namespace

BOOST_AUTO_TEST_CASE(moving_elements) {
  tensors t;
  auto x = t.make({batch, 2, 3, 4});
  for (const std::vector<std::size_t>& axes :
       {std::vector<std::size_t>{0, 1, 2, 3}, {0, 2, 1, 3}, {0, 3, 2, 1}, {0, 3, 1, 2}})
    check_both(t.g, transpose(x, axes));
  check_both(t.g, slice(x, 1, 1, 2));
  check_both(t.g, slice(x, 3, 1, 4));
  check_both(t.g, slice(x, 2, 0, 0));
  check_both(t.g, place(x, 2, 1, {batch, 2, 5, 4}));
  check_both(t.g, slice(place(x, 2, 1, {batch, 2, 5, 4}), 2, 0, 2));
  for (std::size_t axis : {1, 2, 3})
    check_both(t.g, reverse(x, axis));
  auto y = t.make({batch, 2, 1, 4});
  check_both(t.g, concat({x, y, x}, 2));
  check_both(t.g, concat({x, tanh(x)}, 3));
  auto w = t.g.variable("table", {5, 4});
  check_both(t.g, matmul(x, transpose(w, {1, 0})));
  check_both(t.g, matmul(x, slice(w, 0, 1, 4), false, true));
}

BOOST_AUTO_TEST_CASE(blends) {
  const blend_table table{{{2, 0.25}, {0, 0.75}}, {{1, -2}}, {}, {{0, 1}, {1, 2}, {2, 3}}};
  tensors t;
  for (std::size_t axis : {1, 2, 3})
    check_both(t.g, blend(t.make({batch, 3, 4, 5}), axis, table));
  check_both(t.g, blend(t.g.variable("w", {3, 2}), 0, table));
  const auto back = transposed(table, 3);
  BOOST_TEST(back.size() == 3U);
  BOOST_TEST(back[1].size() == 2U);
  BOOST_TEST(back[1][1].position == 3U);
  BOOST_TEST(back[1][1].weight == 2);
}

// An infinite or NaN element affects only the elements that are computed from it, in values and in
// gradients.
BOOST_AUTO_TEST_CASE(a_blend_reads_no_other_elements) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  graph g;
  const auto x = g.variable("x", {4});
  const auto y = blend(x, 0, {{{0, 1}}, {{1, 0.5}, {0, 0.5}}, {{2, 1}}, {{3, 1}}, {}});
  const auto weights = g.constant({1, 1, infinity, 1, NAN}, {5});
  const auto slopes = gradients(sum(y * weights), std::array{x});
  graph_session<double> session{g};
  std::ranges::copy(std::array{1.0, 3.0, infinity, double{NAN}}, session.variables().begin());
  const auto found = session.run({}, {y, slopes[0]});
  check_close(std::span<const double>{found[0]}, std::array{1.0, 2.0, infinity, double{NAN}, 0.0},
              0, 0, "values");
  check_close(std::span<const double>{found[1]}, std::array{1.5, 0.5, infinity, 1.0}, 0, 0,
              "slopes");
}

BOOST_AUTO_TEST_CASE(what_was_placed_is_not_copied_again) {
  tensors t;
  auto x = t.make({batch, 2, 3});
  BOOST_TEST((slice(place(x, 1, 4, {batch, 9, 3}), 1, 4, 6) == x));
}

BOOST_AUTO_TEST_CASE(stopped_gradients) {
  tensors t;
  auto x = t.make({batch, 4});
  auto w = t.g.variable("w", {4});
  auto loss = sum(stop_gradient(add_bias(x, w)) * add_bias(x, w));
  // Because of stop_gradient, one of the two equal factors counts as a constant. So the gradient is
  // half of the gradient of the square.
  const std::vector<expression> by{w};
  auto half = gradients(loss, by)[0];
  auto whole = gradients(sum(add_bias(x, w) * add_bias(x, w)), by)[0];
  auto values = random_leaves(t.g, 3);
  const auto a = reference_value(t.g, half.id(), values);
  const auto b = reference_value(t.g, whole.id(), values);
  for (std::size_t i = 0; i < a.size(); ++i)
    BOOST_TEST(2 * a[i] == b[i], boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(batched_products) {
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      tensors t;
      auto a = t.make(ta ? shape{batch, 2, 5, 3} : shape{batch, 2, 3, 5});
      auto b = t.make(tb ? shape{batch, 2, 4, 5} : shape{batch, 2, 5, 4});
      check_both(t.g, batched_matmul(a, b, ta, tb), 2e-5);
    }
}

BOOST_AUTO_TEST_CASE(embeddings) {
  graph g;
  auto ids = g.placeholder("ids", {batch, 4}, dtype::int32);
  auto table = g.variable("table", {3, 5});
  auto y = embedding(table, ids);
  check_both(g, y);
  check_both(g, embedding_gradient(y * y, ids, 3));
}

BOOST_AUTO_TEST_CASE(embeddings_of_some_ids) {
  graph g;
  auto ids = g.placeholder("ids", {batch, 4}, dtype::int32);
  auto table = g.variable("table", {3, 5});
  const auto first = embedding(table, slice(ids, 1, 0, 2));
  const auto last = embedding(table, slice(ids, 1, 3, 4));
  check_both(g, concat({first, last * last}, 1));
}

BOOST_AUTO_TEST_CASE(an_unknown_id_gives_nan) {
  graph g;
  auto ids = g.placeholder("ids", {batch}, dtype::int32);
  auto y = embedding(g.variable("table", {2, 1}), ids);
  leaves values{4, {{1, 2}}, {{0, 1, 2, -1}}};
  const auto found = execute<float>(g, values, {}, {y}, false).fetches[0];
  BOOST_TEST(found[0] == 1);
  BOOST_TEST(found[1] == 2);
  BOOST_TEST(std::isnan(found[2]));
  BOOST_TEST(std::isnan(found[3]));
}

BOOST_AUTO_TEST_CASE(normalization) {
  for (std::int64_t n : {1, 2, 7, 33}) {
    tensors t;
    auto x = t.make({batch, 2, n});
    auto gain = t.g.variable("gain", {n});
    check_both(t.g, multiply_rows(x, gain));
    check_both(t.g, rms_norm(x, gain, 0.1), 1e-4);
    check_both(t.g, layer_norm(x, gain, t.g.variable("bias", {n}), 0.1), 1e-4);
    auto dy = t.make({batch, 2, n});
    check_both(t.g, normalize_rows_gradient(dy, x, 0.1), 1e-4);
  }
}

BOOST_AUTO_TEST_CASE(attention) {
  tensors t;
  check_both(t.g, causal_softmax(t.make({batch, 2, 5, 5})));
  check_both(t.g, causal_softmax(t.make({batch, 1, 1})));
  auto q = t.make({batch, 5, 6});
  auto k = t.make({batch, 5, 6});
  auto v = t.make({batch, 5, 6});
  check_both(t.g, causal_attention(q, k, v, 1), 2e-5);
  check_both(t.g, causal_attention(q, k, v, 3), 2e-5);
  check_both(t.g, multi_head_attention(q, k, v, 2, false), 2e-5);
  auto more_k = t.make({batch, 7, 6});
  auto more_v = t.make({batch, 7, 6});
  check_both(t.g, multi_head_attention(q, more_k, more_v, 3, false), 2e-5);
}

/// Compares attention and its gradient with the same computation from simpler operations, in
/// double.
void check_attention(graph& g, expression y, std::size_t rows) {
  std::vector<expression> operands;
  for (auto id : y.node().inputs)
    operands.emplace_back(g, id);
  const node of = y.node(); // a copy, because appending nodes moves the original
  const auto composed = composed_attention(of, operands);
  const auto values = random_leaves(g, rows);
  const auto expected = execute<double>(g, values, to_scalar(composed), {composed}, true);
  const auto largest = [](const std::vector<double>& x) {
    double result = 0;
    for (auto v : x)
      result = std::max(result, std::fabs(v));
    return result;
  };
  const auto compare = [&](const executed& found, double rtol) {
    const auto& fetch = expected.fetches[0];
    check_close(found.fetches[0], fetch, rtol, rtol * largest(fetch), y.name());
    check_close(found.gradient, expected.gradient, 10 * rtol,
                10 * rtol * largest(expected.gradient), "gradient of " + y.name());
  };
  compare(execute<double>(g, values, to_scalar(y), {y}, true), 1e-12);
  compare(execute<float>(g, values, to_scalar(y), {y}, true), 2e-5);
}

// Lengths close to the sizes of blocks on the CPU: 32 queries, chunks of 32 keys, 256 keys.
BOOST_AUTO_TEST_CASE(attention_over_several_blocks) {
  for (const std::int64_t time : {1, 2, 31, 32, 33, 67, 255, 256, 289, 520})
    for (const bool causal : {false, true}) {
      graph g;
      const auto x = g.placeholder("x", {batch, time, 3});
      const auto qkv = dense(x, g.variable("w", {18, 3}));
      const auto part = [&](std::int64_t i) { return slice(qkv, 2, 6 * i, 6 * (i + 1)); };
      check_attention(g, multi_head_attention(part(0), part(1), part(2), 2, causal), 2);
    }
  for (const auto& [queries, keys] : {std::pair{1, 300}, {300, 1}, {35, 289}, {70, 31}}) {
    tensors t;
    const auto q = t.make({batch, 2, queries, 17});
    const auto k = t.make({batch, 2, keys, 17});
    check_attention(t.g, troupe::attention(q, k, tanh(k), 2, -0.3, false), 3);
  }
}

BOOST_AUTO_TEST_CASE(attention_and_its_gradients) {
  for (const bool causal : {false, true}) {
    tensors t;
    const auto qkv = t.make({batch, 5, 12});
    const auto part = [&](std::int64_t i) { return slice(qkv, 2, 4 * i, 4 * (i + 1)); };
    check_both(t.g, multi_head_attention(part(0), part(1), part(2), 2, causal), 2e-5);
    const auto q = t.make({batch, 2, 5, 3});
    const auto v = t.make({batch, 2, 5, 3});
    const auto y = troupe::attention(q, q, v, 2, -0.5, causal);
    check_both(t.g, y, 2e-5);
    check_forward(t.g, attention_statistics(y));
    for (const std::size_t operand : {0, 1, 2})
      check_forward(t.g, attention_gradient(tanh(v), y, operand), 2e-5);
  }
}

// Queries, keys and values are parts of one tensor, which attention reads as a whole. The gradients
// with respect to the parts must still be right.
BOOST_AUTO_TEST_CASE(gradients_by_parts_that_attention_reads_in_place) {
  for (const bool causal : {false, true}) {
    graph g;
    const auto x = g.placeholder("x", {batch, 5, 4});
    const auto qkv = dense(x, g.variable("w", {12, 4}));
    std::vector<expression> parts;
    for (std::int64_t i = 0; i < 3; ++i)
      parts.push_back(slice(qkv, 2, 4 * i, 4 * (i + 1)));
    const auto y = multi_head_attention(parts[0], parts[1], parts[2], 2, causal);
    BOOST_TEST_REQUIRE((y.node().op == operation::attention));
    BOOST_TEST(y.node().inputs.size() == 1U);
    // One part is also read by another operation.
    const auto loss = add(to_scalar(y), to_scalar(tanh(parts[1])));
    const std::vector<expression> by{parts[0], parts[1], parts[2], qkv};
    auto found = gradients(loss, by);
    const auto whole = found.back();
    found.pop_back();
    const auto gathered = concat(found, 2);
    const auto apart = gradients(loss, {parts.data(), 3});
    const auto values = random_leaves(g, 2);
    const auto results =
      execute<double>(g, values, loss, {gathered, whole, concat(apart, 2)}, false);
    check_close(results.fetches[0], results.fetches[1], 1e-12, 1e-14, "parts and whole");
    check_close(results.fetches[2], results.fetches[1], 1e-12, 1e-14, "parts alone");
    // The same holds for second derivatives.
    const auto sloped = to_scalar(whole);
    const auto again = gradients(sloped, by);
    const auto second = execute<double>(
      g, values, loss, {concat({again[0], again[1], again[2]}, 2), again[3]}, false);
    check_close(second.fetches[0], second.fetches[1], 1e-12, 1e-14, "second derivatives");
  }
}

// Keys of -infinity hide positions, here even the whole first block.
BOOST_AUTO_TEST_CASE(attention_with_hidden_keys) {
  constexpr std::int64_t time = 300;
  graph g;
  const auto q = g.placeholder("q", {batch, 1, time, 2});
  const auto k = g.placeholder("k", {batch, 1, time, 2});
  const auto v = g.placeholder("v", {batch, 1, time, 2});
  const auto y = troupe::attention(q, k, v, 1, 1, false);
  auto values = random_leaves(g, 1);
  for (std::size_t i = 0; i < time; ++i) {
    values.feeds[0][2 * i] = 1;
    values.feeds[1][2 * i] = i < 290 ? -std::numeric_limits<double>::infinity() : 0;
  }
  const auto composed = composed_attention(y.node(), {q, k, v});
  const auto results = execute<double>(g, values, to_scalar(y), {y, composed}, false);
  check_close(results.fetches[0], results.fetches[1], 1e-12, 1e-12, "attention");
}

BOOST_AUTO_TEST_CASE(second_derivatives_of_attention) {
  for (const bool causal : {false, true}) {
    tensors t;
    const auto x = t.make({batch, 3, 6});
    const auto part = [&](std::int64_t i) { return slice(x, 2, 2 * i, 2 * (i + 1)); };
    const auto y = multi_head_attention(part(0), part(1), part(2), 1, causal);
    const std::vector<expression> by{x};
    check_gradient(t.g, to_scalar(gradients(to_scalar(y), by)[0]), 1e-3);
  }
}

// One matrix product gives queries, keys and values. Attention reads them in place, without copying
// slices, and one step computes the gradients of all three.
BOOST_AUTO_TEST_CASE(attention_reads_parts_in_place) {
  const auto planned = [](const std::function<expression(expression)>& build) {
    graph g;
    const auto x = g.placeholder("x", {batch, 6, 4});
    auto options = cpu_plan_options();
    options.loss = sum(build(dense(x, g.variable("w", {12, 4}))));
    options.gradients = true;
    std::map<operation, int> result;
    const plan what(g, options);
    for (const auto& step : what.instructions())
      ++result[step.op];
    return result;
  };
  const auto part = [](expression x, std::int64_t i) { return slice(x, 2, 4 * i, 4 * (i + 1)); };
  auto found =
    planned([&](expression x) { return causal_attention(part(x, 0), part(x, 1), part(x, 2), 2); });
  BOOST_TEST(found[operation::attention] == 1);
  BOOST_TEST(found[operation::attention_gradient] == 1);
  BOOST_TEST(found[operation::slice] + found[operation::place] + found[operation::transpose] == 0);
  // One part is not used, so the other parts are copied out of the tensor.
  found = planned([&](expression x) {
    const auto keys = part(x, 1);
    return causal_attention(part(x, 0), keys, keys, 2);
  });
  BOOST_TEST(found[operation::attention] == 1);
  BOOST_TEST(found[operation::attention_gradient] == 1);
  BOOST_TEST(found[operation::slice] == 2);
  // For heads that are too wide for GPUs, attention consists of simpler operations.
  graph g;
  const auto wide = g.placeholder("wide", {batch, 3, 129});
  BOOST_TEST((causal_attention(wide, wide, wide, 1).node().op == operation::reshape));
}

BOOST_AUTO_TEST_CASE(recurrence) {
  for (auto how : {cell::rnn, cell::lstm, cell::gru})
    for (std::int64_t time : {1, 2, 5}) {
      tensors t;
      auto h = recurrent_layer(t.make({batch, time, 4}), "first", 3, how);
      check_both(t.g, recurrent_layer(h, "second", 2, how), 5e-5);
    }
}

// Compares a GRU with plain loops. Its reset gate multiplies the state before the matrix product.
BOOST_AUTO_TEST_CASE(a_reset_before_the_product) {
  constexpr std::size_t hidden = 3;
  for (const std::size_t time : {1, 2, 5}) {
    graph g;
    const auto z = g.placeholder("z", {batch, static_cast<std::int64_t>(time), 3 * hidden});
    const auto w = g.variable("w", {3 * hidden, hidden});
    const auto y = gru_reset_before(z, w);
    const auto values = random_leaves(g, 2);
    const auto& in = values.feeds.at(0);
    const auto& u = values.weights.at(0);
    std::vector<double> wanted;
    for (std::size_t sample = 0; sample < 2; ++sample) {
      std::array<double, hidden> h{};
      const auto product = [&](std::size_t row, const std::array<double, hidden>& x) {
        double sum = 0;
        for (std::size_t k = 0; k < hidden; ++k)
          sum += u[row * hidden + k] * x[k];
        return sum;
      };
      const auto sigmoid_of = [](double x) { return 1 / (1 + std::exp(-x)); };
      for (std::size_t t = 0; t < time; ++t) {
        const auto* now = in.data() + (sample * time + t) * 3 * hidden;
        std::array<double, hidden> reset{};
        auto next = h;
        for (std::size_t j = 0; j < hidden; ++j)
          reset[j] = sigmoid_of(now[j] + product(j, h)) * h[j];
        for (std::size_t j = 0; j < hidden; ++j) {
          const auto keep = sigmoid_of(now[hidden + j] + product(hidden + j, h));
          const auto n = std::tanh(now[2 * hidden + j] + product(2 * hidden + j, reset));
          next[j] = (1 - keep) * n + keep * h[j];
        }
        h = next;
        wanted.insert(wanted.end(), h.begin(), h.end());
      }
    }
    const auto found = execute<double>(g, values, {}, {y}, false);
    check_close(std::span<const double>{found.fetches.at(0)}, wanted, 1e-12, 1e-12, "gru");
    check_gradient(g, to_scalar(y), 1e-4);
  }
}

BOOST_AUTO_TEST_CASE(a_recurrent_gradient_is_not_differentiated_again) {
  tensors t;
  auto h = recurrent_layer(t.make({batch, 2, 4}), "layer", 3, cell::lstm);
  const std::vector<expression> by{t.g.find("layer.weight_hh_l0")};
  auto once = gradients(sum(h), by)[0];
  BOOST_CHECK_THROW(gradients(sum(once * once), by), input_error);
}

BOOST_AUTO_TEST_CASE(misfits) {
  tensors t;
  auto x = t.make({batch, 2, 6});
  const auto refused = [](auto f, const char* text) {
    BOOST_CHECK_EXCEPTION(f(), input_error, [text](const input_error& error) {
      BOOST_TEST_MESSAGE(error.what());
      return std::string(error.what()).find(text) != std::string::npos;
    });
  };
  refused([&] { transpose(x, {1, 0, 2}); }, "the batch first");
  refused([&] { transpose(x, {0, 1}); }, "each of its axes once");
  refused([&] { slice(x, 0, 0, 1); }, "is the batch");
  refused([&] { slice(x, 1, 1, 3); }, "positions 1 to 3");
  refused([&] { place(x, 1, 1, {batch, 2, 6}); }, "does not fit into (batch, 2, 6)");
  refused([&] { concat({x, t.make({batch, 3, 6})}, 2); }, "differ in more than axis 2");
  refused([&] { batched_matmul(x, x); }, "different lengths");
  refused([&] { embedding(x, x); }, "int32 ids");
  refused([&] { causal_softmax(x); }, "square matrices");
  refused([&] { causal_attention(x, x, x, 4); }, "4 heads");
  auto y = t.make({batch, 3, 6});
  refused([&] { causal_attention(x, y, y, 2); }, "the same number of time steps");
  refused([&] { multi_head_attention(x, y, x, 2, false); }, "three tensors");
  refused([&] { reverse(x, 0); }, "is the batch");
  refused([&] { blend(x, 0, {{{0, 1}}}); }, "is the batch");
  refused([&] { blend(x, 1, {}); }, "at least one entry");
  refused([&] { blend(x, 1, {{{2, 1}}}); }, "position 2 of axis 1");
  refused([&] { rms_norm(x, t.g.variable("g", {6}), 0); }, "an epsilon above 0");
  refused([&] { lstm(x, t.g.variable("w", {6, 2})); }, "(batch, time, 4 hidden)");
  refused([&] { gru_reset_before(x, t.g.variable("u", {6, 3})); }, "(3 hidden, hidden)");
  refused([&] { recurrent_layer(x, "rnn_1", 0, cell::rnn); }, "layer \"rnn_1\"");
}

BOOST_AUTO_TEST_SUITE_END()
