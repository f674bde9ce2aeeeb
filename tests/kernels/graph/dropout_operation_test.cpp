#include "kernels/cpu/executor.hpp"
#include "kernels/graph/operations.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(dropout_operation)

namespace {

constexpr auto batch = shape::batch;

} // namespace

BOOST_AUTO_TEST_CASE(dropout_keeps_some) {
  for (double rate : {0.0, 0.25, 0.9}) {
    graph g;
    auto h = matmul(g.placeholder("x", {batch, 5}), g.variable("w", {5, 5}));
    check_both(g, dropout(h, rate, "drop"));
  }
  // With a rate of 0.3, 70 % of the elements are kept, and the mean does not change.
  graph g;
  auto x = g.placeholder("x", {batch, 1000});
  leaves values;
  values.rows = 100;
  values.feeds = {std::vector<double>(100'000, 1)};
  auto first = dropout(x, 0.3, "first");
  auto second = dropout(x, 0.3, "second");
  const auto result = execute<float>(g, values, {}, {first, second}, false);
  for (const auto& y : result.fetches) {
    const auto kept = std::ranges::count_if(y, [](double v) { return v != 0; });
    // Bound: 5 standard deviations of this binomial distribution, which are 145 each.
    BOOST_TEST(std::abs(kept - 70'000) < 5 * 145);
    BOOST_TEST(*std::ranges::max_element(y) == 1 / 0.7, boost::test_tools::tolerance(1e-6));
  }
  const auto both = std::ranges::count(
    [&] {
      std::vector<bool> same;
      for (std::size_t i = 0; i < 100'000; ++i)
        same.push_back(result.fetches[0][i] != 0 && result.fetches[1][i] != 0);
      return same;
    }(),
    true);
  BOOST_TEST(std::abs(both - 49'000) < 5 * 158); // both masks are independent of each other
  // Neighbors in a row or in a column are independent, too.
  for (std::size_t step : {1, 1000}) {
    std::ptrdiff_t pairs = 0;
    for (std::size_t i = 0; i + step < 100'000; ++i)
      pairs += result.fetches[0][i] != 0 && result.fetches[0][i + step] != 0 ? 1 : 0;
    BOOST_TEST(std::abs(pairs - 49'000) < 1500);
  }
}

BOOST_AUTO_TEST_CASE(masks_follow_the_seed_of_the_run) {
  graph g;
  auto x = g.placeholder("x", {batch, 64});
  auto options = cpu_plan_options();
  options.fetches = {dropout(x, 0.5, "drop")};
  executor<float> run(std::make_shared<plan>(g, options));
  const std::vector<float> ones(64 * 64, 1);
  const std::vector<feed<float>> feeds{ones.data()};
  const auto mask = [&](std::uint64_t seed, std::size_t rows) {
    run_arguments<float> arguments;
    arguments.rows = rows;
    arguments.feeds = feeds;
    arguments.seed = seed;
    run.run(arguments);
    return std::vector<float>{run.fetched(0).begin(), run.fetched(0).end()};
  };
  BOOST_TEST(mask(1, 64) == mask(1, 64));
  BOOST_TEST(mask(1, 64) != mask(2, 64));
  auto begin = mask(1, 64);
  begin.resize(3 * 64);
  BOOST_TEST(mask(1, 3) == begin);
}

BOOST_AUTO_TEST_SUITE_END()
