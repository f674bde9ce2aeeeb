#include "kernels/graph/sparse_operations.hpp"

#include "kernels/cpu/executor.hpp"
#include "kernels/error.hpp"
#include "kernels/graph/gradients.hpp"
#include "kernels/graph/sequence_operations.hpp"
#include "kernels/plan/plan.hpp"
#include "tests/kernels/numeric.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(sparse_operations)

namespace {

constexpr auto batch = shape::batch;

expression sparse_input(graph& g, std::int64_t width) {
  return g.placeholder("x", {batch, width}, dtype::sparse);
}

} // namespace

// random_leaves makes batches with empty rows, and with columns that do not occur.
BOOST_AUTO_TEST_CASE(products_and_their_gradients) {
  for (std::int64_t width : {1, 7, 33})
    for (std::int64_t units : {1, 2, 5, 16}) {
      graph g;
      auto x = sparse_input(g, width);
      auto w = g.variable("w", {width, units});
      auto y = sparse_matmul(x, w);
      check_both(g, y);
      check_both(g, sparse_matmul_gradient(x, y * y));
    }
}

BOOST_AUTO_TEST_CASE(a_gradient_is_differentiated_again) {
  graph g;
  auto x = sparse_input(g, 9);
  auto w = g.variable("w", {9, 3});
  const std::vector<expression> by{w};
  auto first = gradients(to_scalar(tanh(sparse_matmul(x, w))), by)[0];
  check_gradient(g, to_scalar(first), 1e-4);
}

BOOST_AUTO_TEST_CASE(layer) {
  graph g;
  auto x = sparse_input(g, 11);
  auto h = sparse_dense_layer(x, "hidden", 6, activation::tanh);
  check_both(g, dense_layer(h, "out", 2));
  BOOST_TEST((g.find("hidden.weight").shape() == shape{11, 6}));
  BOOST_TEST((g.find("hidden.bias").shape() == shape{6}));
  BOOST_TEST((sparse_dense_layer(x, "bare", 1, activation::none, false).node().op
              == operation::sparse_matmul));
}

BOOST_AUTO_TEST_CASE(repeated_and_unknown_columns) {
  graph g;
  auto x = sparse_input(g, 3);
  auto y = sparse_matmul(x, g.variable("w", {3, 2}));
  auto options = cpu_plan_options();
  options.fetches = {y};
  options.loss = sum(y);
  options.gradients = true;
  executor<double> run{std::make_shared<const plan>(g, options)};
  const std::vector<double> weights{1, 10, 2, 20, 3, 30};
  const std::vector<std::int32_t> starts{0, 3, 3, 4, 5};
  const std::vector<std::int32_t> columns{1, 1, 0, 3, -1};
  const std::vector<double> values{0.5, 0.25, -1, 1, 1};
  std::vector<double> gradient(6, 77);
  const std::vector<const double*> pointers{weights.data()};
  const std::vector<feed<double>> feeds{
    sparse_rows<double>{starts.data(), columns.data(), values.data()}};
  run_arguments<double> arguments;
  arguments.rows = 4;
  arguments.weights = pointers;
  arguments.feeds = feeds;
  arguments.gradient = gradient;
  run.run(arguments);
  const auto found = run.fetched(0);
  BOOST_TEST(found[0] == 0.75 * 2 - 1);
  BOOST_TEST(found[1] == 0.75 * 20 - 10);
  BOOST_TEST(found[2] == 0); // the row is empty
  BOOST_TEST(found[3] == 0);
  for (int i = 4; i < 8; ++i)
    BOOST_TEST(std::isnan(found[i]));
  const std::vector<double> expected{-1, -1, 0.75, 0.75, 0, 0};
  BOOST_TEST(gradient == expected);
}

// The rows of a weight, even with a single column, may be in several pieces of memory.
BOOST_AUTO_TEST_CASE(weights_in_pieces) {
  for (const std::size_t units : {1, 3}) {
    graph g;
    auto x = sparse_input(g, 50);
    auto y = sparse_matmul(x, g.variable("w", {50, static_cast<std::int64_t>(units)}));
    auto options = cpu_plan_options();
    options.fetches = {y};
    const auto what = std::make_shared<const plan>(g, options);
    BOOST_TEST(may_be_cut(*what, 0));
    executor<float> run{what};
    const auto random = random_values(50 * units, "w");
    const std::vector<float> weights{random.begin(), random.end()};
    const std::vector<std::int32_t> starts{0, 5, 7};
    const std::vector<std::int32_t> columns{0, 49, 13, 12, 30, 13, 31};
    const std::vector<float> numbers{0.5, 0.25, -1, 3, 7, 2, 1};
    const std::vector<feed<float>> feeds{
      sparse_rows<float>{starts.data(), columns.data(), numbers.data()}};
    const std::vector<const float*> pointers{weights.data()};
    run_arguments<float> arguments;
    arguments.rows = 2;
    arguments.weights = pointers;
    arguments.feeds = feeds;
    run.run(arguments);
    const std::vector<float> expected{run.fetched(0).begin(), run.fetched(0).end()};
    // Each piece has memory of its own, and the pointer to the whole weight must not be read.
    std::vector<std::vector<float>> pieces;
    std::vector<weight_rows<float>> parts;
    for (const range rows : {range{0, 13}, {13, 15}, {15, 31}, {31, 50}}) {
      pieces.emplace_back(weights.begin() + static_cast<std::ptrdiff_t>(rows.begin * units),
                          weights.begin() + static_cast<std::ptrdiff_t>(rows.end * units));
      parts.push_back({0, rows, pieces.back().data()});
    }
    const std::vector<float> other(50 * units, std::numeric_limits<float>::quiet_NaN());
    const std::vector<const float*> cut{other.data()};
    arguments.weights = cut;
    arguments.parts = parts;
    run.run(arguments);
    BOOST_TEST(same_bits(run.fetched(0), expected));
  }
}

// If the gradients of tables are 0 before the run, only the rows of the batch are written.
BOOST_AUTO_TEST_CASE(gradients_of_cleared_tables) {
  graph g;
  auto x = sparse_input(g, 6);
  auto ids = g.placeholder("ids", {batch}, dtype::int32);
  auto w = g.variable("w", {6, 2});
  auto table = g.variable("table", {6, 2});
  auto fetched = g.variable("fetched", {6, 2});
  auto y = sparse_matmul(x, w) + embedding(table, ids) + embedding(fetched, ids);
  auto options = cpu_plan_options();
  options.loss = sum(y * y);
  options.fetches = {fetched}; // so all of its rows are read, and its gradient is not row-sparse
  options.gradients = true;
  const auto what = std::make_shared<const plan>(g, options);
  BOOST_TEST(what->row_sparse_gradients().size() == 2u);
  executor<float> run{what};
  const std::vector<float> weights{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::vector<std::int32_t> starts{0, 2, 3};
  const std::vector<std::int32_t> columns{4, 1, 1};
  const std::vector<float> numbers{0.5, 0.25, -1};
  const std::vector<std::int32_t> named{5, 0};
  const std::vector<const float*> pointers{weights.data(), weights.data(), weights.data()};
  const std::vector<feed<float>> feeds{
    sparse_rows<float>{starts.data(), columns.data(), numbers.data()}, named.data()};
  run_arguments<float> arguments;
  arguments.rows = 2;
  arguments.weights = pointers;
  arguments.feeds = feeds;
  std::vector<float> expected(36, 77);
  arguments.gradient = expected;
  run.run(arguments);
  std::vector<float> found(36, 0);
  std::fill(found.begin() + 24, found.end(), 77.0F); // not cleared, because it is not row-sparse
  found[0] = 77; // row 0 of w is not in the batch, so this element is not written
  arguments.gradient = found;
  arguments.tables_cleared = true;
  run.run(arguments);
  BOOST_TEST(found[0] == 77);
  BOOST_TEST(expected[0] == 0);
  found[0] = 0;
  BOOST_TEST(same_bits(found, expected));
}

BOOST_AUTO_TEST_CASE(row_sparse_gradients_are_named) {
  graph g;
  auto x = sparse_input(g, 50);
  auto ids = g.placeholder("ids", {batch}, dtype::int32);
  auto first = g.variable("first", {4});
  auto table = g.variable("table", {50, 4});
  auto w = g.variable("w", {50, 4});
  auto penalized = g.variable("penalized", {50, 4});
  auto y =
    add_bias(sparse_matmul(x, w) + embedding(table, ids) + sparse_matmul(x, penalized), first);
  auto loss = sum(y * y) + sum(penalized * penalized);
  auto options = cpu_plan_options();
  options.max_rows = 2;
  options.loss = loss;
  options.gradients = true;
  const plan p{g, options};
  BOOST_TEST(p.row_sparse_gradients().size() == 2u);
  // Only gradients with few rows are listed, in the order of the layout. The gradient of
  // `penalized` is not listed: because of the penalty, it has all rows.
  BOOST_TEST(p.row_sparse_gradients()[0].parameter == 1u);
  BOOST_REQUIRE(p.row_sparse_gradients()[0].feed == 1u);
  BOOST_TEST(p.row_sparse_gradients()[1].parameter == 2u);
  BOOST_TEST(p.row_sparse_gradients()[1].feed == 0u);

  auto values = random_leaves(g, 2, 50);
  const auto gradient = execute<double>(g, values, loss, {}, true).gradient;
  for (const auto& named : p.row_sparse_gradients())
    for (std::size_t row = 0; row < 50; ++row) {
      const auto& feed = values.feeds[named.feed];
      const bool is_named = named.feed == 0
        ? feed[row] != 0 || feed[50 + row] != 0
        : feed[0] == static_cast<double>(row) || feed[1] == static_cast<double>(row);
      const auto offset = p.parameters().entries()[named.parameter].offset;
      for (std::size_t j = 0; j < 4; ++j)
        BOOST_TEST((gradient[offset + row * 4 + j] != 0) == is_named);
    }
}

BOOST_AUTO_TEST_CASE(misfits) {
  graph g;
  auto x = sparse_input(g, 5);
  auto w = g.variable("w", {4, 2});
  BOOST_TEST(contains(error_of([&] { sparse_matmul(x, w); }),
                      "\"x\" (batch, 5) and \"w\" (4, 2) do not fit"));
  BOOST_TEST(contains(error_of([&] { sparse_matmul(w, w); }), "\"w\" (4, 2) is not sparse"));
  BOOST_TEST(contains(error_of([&] { sparse_matmul_gradient(x, w); }), "do not fit"));
  BOOST_TEST(contains(error_of([&] { dense_layer(x, "layer", 3); }), "\"x\" (batch, 5) is sparse"));
  BOOST_TEST(contains(error_of([&] { relu(x); }), "is sparse"));
  BOOST_TEST(contains(error_of([&] { sparse_dense_layer(x, "layer", 0); }), "0 units"));
  auto loss = sum(sparse_matmul(x, g.variable("v", {5, 1})));
  const std::vector<expression> by{x};
  BOOST_TEST(contains(error_of([&] { gradients(loss, by); }), "\"x\" is sparse"));
}

BOOST_AUTO_TEST_SUITE_END()
