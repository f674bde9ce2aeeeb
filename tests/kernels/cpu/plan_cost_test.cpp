#include "kernels/cpu/plan_cost.hpp"

#include "kernels/cpu/executor.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"

#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(plan_cost)

using namespace troupe;

namespace {

constexpr std::size_t rows = 8;

plan forward(graph& g, expression y) {
  auto options = cpu_plan_options();
  options.max_rows = rows;
  options.fetches = {y};
  return {g, options};
}

/// The cost of the only instruction of the plan that has this operation.
instruction_cost cost(const plan& p, operation op) {
  const instruction* found = nullptr;
  for (const auto& x : p.instructions())
    if (x.op == op) {
      BOOST_TEST_REQUIRE(found == nullptr);
      found = &x;
    }
  BOOST_TEST_REQUIRE(found != nullptr, to_string(op) << " is not in the plan");
  return cost_of(*found, rows);
}

void check(const instruction_cost& found, std::uint64_t flops, std::uint64_t floats_read,
           std::uint64_t floats_written) {
  BOOST_TEST(found.flops == flops);
  BOOST_TEST(found.bytes_read == 4 * floats_read);
  BOOST_TEST(found.bytes_written == 4 * floats_written);
}

} // namespace

BOOST_AUTO_TEST_CASE(a_dense_layer) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 10});
  const auto p = forward(g, dense_layer(x, "a", 3, activation::relu));
  // 8 x 3 elements: each has 10 products and sums, a bias and a maximum.
  check(cost(p, operation::matmul), 8 * 3 * (2 * 10 + 1 + 1), 8 * 10 + 3 * 10 + 3, 8 * 3);
}

BOOST_AUTO_TEST_CASE(transposed_products) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 10});
  const auto y = g.placeholder("y", {shape::batch, 4});
  // Each of 10 x 4 elements is a sum over 8 samples.
  check(cost(forward(g, matmul(x, y, true)), operation::matmul), 2 * 8 * 10 * 4, 8 * 14, 40);
  const auto a = g.placeholder("a", {shape::batch, 5, 6});
  const auto b = g.placeholder("b", {shape::batch, 7, 6});
  check(cost(forward(g, batched_matmul(a, b, false, true)), operation::batched_matmul),
        2 * 8 * 5 * 7 * 6, 8 * (30 + 42), 8 * 35);
}

BOOST_AUTO_TEST_CASE(convolutions) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 4, 6, 6});
  window how{3, 3, 1, 1, 1, 1, 2};
  const auto w = g.variable("w", {8, 2, 3, 3});
  const auto y = conv2d(x, w, how);
  check(cost(forward(g, y), operation::conv2d), 2 * (8 * 8 * 36) * (2 * 9), 8 * 4 * 36 + 8 * 2 * 9,
        8 * 8 * 36);
  const auto dx = conv2d_input_gradient(y, w, how, x.shape());
  BOOST_TEST(cost(forward(g, dx), operation::conv2d_input_gradient).flops
             == 2u * (8 * 8 * 36) * (2 * 9));
  const auto dw = conv2d_weight_gradient(x, y, how);
  BOOST_TEST(cost(forward(g, dw), operation::conv2d_weight_gradient).flops
             == 2u * (8 * 8 * 36) * (2 * 9));
  const window pool{2, 2, 2, 2, 0, 0, 1};
  check(cost(forward(g, average_pool(x, pool)), operation::average_pool), 8 * 4 * 9 * 4, 8 * 4 * 36,
        8 * 4 * 9);
}

BOOST_AUTO_TEST_CASE(element_wise_chains) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 10});
  const auto y = g.placeholder("y", {shape::batch, 10});
  // The four operations are fused, so y is read only once.
  const auto p = forward(g, tanh(x * y + y) * y);
  BOOST_TEST_REQUIRE(p.instructions().size() == 1u);
  check(cost_of(p.instructions()[0], rows), 4 * 80, 160, 80);
}

BOOST_AUTO_TEST_CASE(sequences) {
  graph g;
  const auto z = g.placeholder("z", {shape::batch, 5, 12});
  const auto w = g.variable("w", {12, 3});
  BOOST_TEST(cost(forward(g, lstm(z, w)), operation::recurrent).flops == 8u * 5 * 12 * (2 * 3 + 3));
  const auto ids = g.placeholder("ids", {shape::batch, 5}, dtype::int32);
  const auto table = g.variable("table", {1000, 4});
  // Of the table, one row per token counts as read.
  check(cost(forward(g, embedding(table, ids)), operation::embedding), 0, 8 * 5 * 4 + 8 * 5,
        8 * 5 * 4);
}

BOOST_AUTO_TEST_CASE(totals) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 10});
  const auto p = forward(g, dense_layer(dense_layer(x, "a", 6), "b", 2));
  const auto all = cost_of(p);
  BOOST_TEST(all.flops == 8u * 6 * 21 + 8u * 2 * 13);
  BOOST_TEST(all.bytes_written == 4u * 8 * 8);
}

// Without a backward pass, the activations of two layers exist at the same time, and never those of
// three.
BOOST_AUTO_TEST_CASE(memory) {
  graph g;
  auto y = g.placeholder("x", {shape::batch, 16});
  for (const auto* name : {"a", "b", "c", "d"})
    y = dense_layer(y, name, 32);
  const auto p = forward(g, y);
  const auto m = memory_of(p);
  BOOST_TEST(m.parameters == 4u * (32 * 17 + 3 * 32 * 33));
  BOOST_TEST(m.gradient == 0u);
  BOOST_TEST(m.needed == 4u * 2 * 8 * 32);
  BOOST_TEST(m.arena == m.needed);
}

BOOST_AUTO_TEST_CASE(memory_of_training) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 64});
  const auto labels = g.placeholder("labels", {shape::batch}, dtype::int32);
  auto y = x;
  for (const auto* name : {"a", "b", "c"})
    y = dense_layer(y, name, 64, activation::relu);
  auto options = cpu_plan_options();
  options.max_rows = rows;
  options.loss = softmax_cross_entropy(y, labels);
  options.gradients = true;
  const plan p{g, options};
  const auto m = memory_of(p);
  BOOST_TEST(m.gradient == m.parameters);
  // The backward pass needs the activations of all three layers. Gradients of activations can
  // overwrite each other.
  BOOST_TEST(m.needed >= 4u * 3 * rows * 64);
  BOOST_TEST(m.arena >= m.needed);
  BOOST_TEST(static_cast<double>(m.arena) <= 1.3 * static_cast<double>(m.needed));
}

// Constants stay in memory between runs, so they count.
BOOST_AUTO_TEST_CASE(memory_of_constants) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 32});
  const auto p = forward(g, add_bias(x, g.constant(std::vector<double>(32, 2), {32})));
  BOOST_TEST(memory_of(p).needed == 4u * (32 + 8 * 32));
}

BOOST_AUTO_TEST_SUITE_END()
