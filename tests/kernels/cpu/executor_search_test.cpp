// Tests executor::find_not_finite, which names the first input or result with a value that is not
// finite.

#include "kernels/cpu/executor.hpp"
#include "kernels/cpu/reduce.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sparse_operations.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <limits>
#include <memory>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(executor_search)

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

/// A model whose loss is the mean of log(x w^T). The loss is not finite if a product is negative.
struct model {
  graph g;
  expression x = g.placeholder("x", {shape::batch, 3});
  expression w = g.variable("w", {2, 3});
  expression unused = g.variable("unused", {4});
  expression product = matmul(x, w, false, true);
  expression loss = sum(log(product));
  executor<float> runner{make_plan()};
  std::vector<float> features{1, 2, 3, 4, 5, 6};
  std::vector<float> weights{1, 1, 1, 2, 2, 2};
  std::vector<float> others{0, 0, 0, 0};
  std::vector<float> gradient = std::vector<float>(10);
  std::size_t rows = 2;

  std::shared_ptr<const plan> make_plan() const {
    auto options = cpu_plan_options();
    options.max_rows = 2;
    options.loss = loss;
    options.gradients = true;
    return std::make_shared<const plan>(g, options);
  }

  std::string search() {
    const std::vector<const float*> pointers{weights.data(), others.data()};
    const std::vector<feed<float>> feeds{features.data()};
    run_arguments<float> arguments;
    arguments.rows = rows;
    arguments.weights = pointers;
    arguments.feeds = feeds;
    arguments.gradient = gradient;
    return runner.find_not_finite(arguments);
  }
};

} // namespace

BOOST_AUTO_TEST_CASE(nothing_where_all_is_finite) {
  BOOST_TEST(model{}.search() == "");
}

BOOST_AUTO_TEST_CASE(weights_come_first) {
  model x;
  x.features[4] = not_a_number;
  x.weights[5] = not_a_number;
  BOOST_TEST(x.search() == "weights w");
  x.weights[5] = 1;
  x.others[0] = -std::numeric_limits<float>::infinity();
  BOOST_TEST(x.search() == "weights unused");
}

BOOST_AUTO_TEST_CASE(then_feeds_of_the_rows_of_the_batch) {
  model x;
  x.features[4] = not_a_number;
  BOOST_TEST(x.search() == "x");
  x.rows = 1;
  BOOST_TEST(x.search() == "");
}

BOOST_AUTO_TEST_CASE(entries_of_sparse_feeds) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 3}, dtype::sparse);
  const auto w = g.variable("w", {3, 2});
  auto options = cpu_plan_options();
  options.max_rows = 2;
  options.loss = sum(sparse_matmul(x, w));
  executor<float> runner{std::make_shared<const plan>(g, options)};
  const std::vector<float> weights(6, 1);
  const std::vector<const float*> pointers{weights.data()};
  const std::vector<std::int32_t> starts{1, 2, 3};
  const std::vector<std::int32_t> columns{0, 1, 2, 0};
  run_arguments<float> arguments;
  arguments.rows = 2;
  arguments.weights = pointers;
  for (std::size_t bad = 0; bad < 4; ++bad) {
    std::vector<float> values(4, 1);
    values[bad] = not_a_number;
    const std::vector<feed<float>> feeds{
      sparse_rows<float>{starts.data(), columns.data(), values.data()}};
    arguments.feeds = feeds;
    // Elements 0 and 3 are in no row of the batch, so they do not count.
    BOOST_TEST(runner.find_not_finite(arguments) == (bad == 1 || bad == 2 ? "x" : ""));
  }
}

BOOST_AUTO_TEST_CASE(then_the_first_result) {
  model x;
  x.features[0] = 3e38F;
  x.weights[3] = 3e38F;
  BOOST_TEST(x.search() == "result " + x.product.name() + " (computed with weights w)");
  x.weights[3] = 1;
  x.features[0] = -1e3F;
  // The logarithm and its sum may be fused into one step, which has the name of the sum.
  const auto first = x.search();
  BOOST_TEST((first.starts_with("result " + x.loss.name()) || first.starts_with("result log")),
             first);
  // It reads no weights itself, but the product that it reads does.
  BOOST_TEST(first.ends_with(" (computed with weights w)"), first);
}

BOOST_AUTO_TEST_CASE(a_run_afterwards_is_as_before) {
  model x;
  x.features[4] = not_a_number;
  x.search();
  x.features[4] = 5;
  BOOST_TEST(x.search() == "");
  BOOST_TEST(all_finite(x.gradient));
}

BOOST_AUTO_TEST_SUITE_END()
