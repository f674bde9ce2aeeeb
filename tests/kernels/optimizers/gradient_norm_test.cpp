#include "kernels/optimizers/gradient_norm.hpp"

#include "kernels/cpu/reduce.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

using namespace troupe;
using namespace troupe::test;

namespace {

troupe::layout example() {
  troupe::layout x;
  x.add("a.weight", {31, 17});
  x.add("a.mean", {31}, {}, parameter_kind::state);
  x.add("empty", {0});
  x.add("b.weight", {13, 31});
  return x;
}

} // namespace

BOOST_AUTO_TEST_SUITE(gradient_norm)

BOOST_AUTO_TEST_CASE(sums_of_squares) {
  for (const std::size_t n : {0, 1, 15, 16, 17, 1000}) {
    const auto x = random_values(n, "x");
    double expected = 0;
    for (const double value : x)
      expected += value * value;
    BOOST_TEST(std::abs(sum_of_squares(std::span<const double>{x}) - expected) <= 1e-13 * expected);
  }
  // In float, the squares of these numbers would overflow or become 0.
  const std::vector<float> extreme{1e30F, 1e-30F};
  BOOST_TEST(sum_of_squares(std::span{extreme}.first(1)) > 0.99e60);
  BOOST_TEST(sum_of_squares(std::span{extreme}.last(1)) > 0.99e-60);
}

BOOST_AUTO_TEST_CASE(state_does_not_count_and_parts_add_up) {
  const auto layout = example();
  const auto n = layout.size();
  std::vector<float> values(n, 2);
  std::fill_n(values.begin() + 31 * 17, 31, 1e10F);
  const double expected = 4 * (31 * 17 + 13 * 31);
  for (const std::size_t parts : {1, 2, 5, 100}) {
    double sum = 0;
    for (auto part : split_evenly(n, parts))
      sum += squared_norm(layout, part, std::span{values}.subspan(part.begin, part.size()));
    BOOST_TEST(sum == expected); // exact, because all numbers are whole
  }
}

// The parts of a range: tensors of the same kind that follow each other are one part. Frozen
// parameters are in no part, and do not matter.
BOOST_AUTO_TEST_CASE(a_norm_of_sums_of_squares) {
  auto layout = example();
  layout.add("c.weight", {3});
  layout.add("frozen", {7}, {}, parameter_kind::frozen);
  layout.add("d.weight", {2});
  const auto n = layout.size();
  const auto parts = norm_parts_of(layout, {5, n});
  BOOST_TEST_REQUIRE(parts.size() == 4U);
  const std::size_t state = 31 * 17 - 5;
  BOOST_TEST((parts[0].where == range{0, state}));
  BOOST_TEST((parts[1].where == range{state, state + 31}));
  BOOST_TEST((parts[2].where == range{state + 31, n - 5 - 9}));
  BOOST_TEST((parts[3].where == range{n - 5 - 2, n - 5}));
  for (std::size_t i = 0; i < parts.size(); ++i)
    BOOST_TEST(parts[i].counts == (i != 1));
  BOOST_TEST(squared_norm(parts, std::vector<double>{1, 20, 300, 4000}) == 4301);
  constexpr auto inf = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::vector<double> squares(parts.size(), 1);
    squares[i] = inf;
    BOOST_TEST(std::isnan(squared_norm(parts, squares)));
  }
  BOOST_TEST(norm_parts_of(layout, {n - 8, n - 3}).empty());
}

// Only the given parts are read. They may begin and end within tensors, and contain several.
BOOST_AUTO_TEST_CASE(parts_of_a_gradient) {
  const auto layout = example();
  const auto n = layout.size();
  constexpr auto nan = std::numeric_limits<float>::quiet_NaN();
  const range where{5, n - 2};
  const range_list parts{{0, 2}, {31 * 17 - 7, 31 * 17 + 40}, {n - 17, n - 7}};
  std::vector<float> values(where.size(), nan);
  for (const auto& part : parts)
    std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(part.begin), part.size(), 2.0F);
  BOOST_TEST(squared_norm(layout, where, values, parts) == 4 * (2 + 47 - 31 + 10));
  BOOST_TEST(squared_norm(layout, where, values, {}) == 0);
  BOOST_TEST(first_not_finite(layout, where, values, parts) == "");
  BOOST_TEST(first_not_finite(layout, where, values, {{2, 3}}) == "a.weight");
  BOOST_TEST(first_not_finite(layout, where, values, {{0, 1}, {n - 18, n - 16}}) == "b.weight");
  values[31 * 17] = nan; // an element of a.mean, which is state
  BOOST_TEST(std::isnan(squared_norm(layout, where, values, parts)));
}

BOOST_AUTO_TEST_CASE(the_first_tensor_that_is_not_finite) {
  const auto layout = example();
  const range all{0, layout.size()};
  std::vector<float> values(layout.size(), 1);
  BOOST_TEST(first_not_finite(layout, all, values) == "");
  values.back() = std::numeric_limits<float>::infinity();
  BOOST_TEST(first_not_finite(layout, all, values) == "b.weight");
  BOOST_TEST(!std::isfinite(squared_norm(layout, all, values)));
  values.back() = 1;
  values[31 * 17] = std::numeric_limits<float>::infinity(); // an element of layer state
  BOOST_TEST(std::isnan(squared_norm(layout, all, values)));
  BOOST_TEST(!std::isnan(squared_norm(layout, {0, 31 * 17}, std::span{values}.first(31 * 17))));
  values.back() = std::numeric_limits<float>::quiet_NaN();
  BOOST_TEST(first_not_finite(layout, all, values) == "a.mean");
  const range end{layout.size() - 5, layout.size()};
  BOOST_TEST(first_not_finite(layout, end, std::span{values}.last(5)) == "b.weight");
  BOOST_TEST(first_not_finite(layout, {0, 100}, std::span{values}.first(100)) == "");
}

BOOST_AUTO_TEST_SUITE_END()
