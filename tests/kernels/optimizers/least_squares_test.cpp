#include "kernels/optimizers/least_squares.hpp"

#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

using namespace troupe;
using namespace troupe::test;

namespace {

struct samples {
  std::size_t features;
  std::size_t targets;
  std::vector<float> x;
  std::vector<float> y;

  std::size_t count() const { return y.size() / targets; }
};

samples random_samples(std::size_t count, std::size_t features, std::size_t targets) {
  samples result{features, targets, {}, {}};
  for (const double value : random_values(count * features, "x"))
    result.x.push_back(static_cast<float>(value));
  for (const double value : random_values(count * targets, "y"))
    result.y.push_back(static_cast<float>(value));
  return result;
}

least_squares_solution solve(const samples& data, bool bias, double ridge,
                             std::size_t block = ~std::size_t{0}) {
  troupe::least_squares sums(data.features, data.targets, bias);
  for (std::size_t first = 0; first < data.count();
       first += std::min(block, data.count() - first)) {
    const auto rows = std::min(block, data.count() - first);
    sums.add(std::span{data.x}.subspan(first * data.features, rows * data.features),
             std::span{data.y}.subspan(first * data.targets, rows * data.targets));
  }
  BOOST_TEST(sums.samples() == data.count());
  return sums.solve(ridge);
}

/// The largest element of the gradient of the function to minimize, at a solution. It is 0 at a
/// minimum.
double largest_gradient(const samples& data, const least_squares_solution& x, double ridge) {
  double largest = 0;
  double error = 0;
  for (std::size_t t = 0; t < data.targets; ++t) {
    std::vector<double> gradient(data.features + 1);
    for (std::size_t i = 0; i < data.count(); ++i) {
      double rest = (x.bias.empty() ? 0 : x.bias[t]) - double{data.y[i * data.targets + t]};
      for (std::size_t j = 0; j < data.features; ++j)
        rest += x.weights[t * data.features + j] * double{data.x[i * data.features + j]};
      error += rest * rest;
      for (std::size_t j = 0; j < data.features; ++j)
        gradient[j] += rest * double{data.x[i * data.features + j]};
      gradient[data.features] += rest;
    }
    for (std::size_t j = 0; j < data.features; ++j)
      largest = std::max(largest, std::abs(gradient[j] + ridge * x.weights[t * data.features + j]));
    if (!x.bias.empty())
      largest = std::max(largest, std::abs(gradient[data.features] + ridge * x.bias[t]));
  }
  BOOST_TEST(std::abs(x.squared_error - error) <= 1e-8 * (1 + error));
  return largest;
}

} // namespace

BOOST_AUTO_TEST_SUITE(least_squares)

BOOST_AUTO_TEST_CASE(the_gradient_is_zero) {
  for (const std::size_t count : {20, 513, 1500})
    for (const std::size_t features : {1, 3, 17})
      for (const std::size_t targets : {1, 2})
        for (const bool bias : {true, false})
          for (const double ridge : {0.0, 0.5, 100.0}) {
            auto data = random_samples(count, features, targets);
            for (auto& value : data.x)
              value += 5;
            const auto x = solve(data, bias, ridge);
            BOOST_TEST_REQUIRE(x.dependent.empty());
            BOOST_TEST(x.bias.size() == (bias ? targets : 0U));
            BOOST_TEST(largest_gradient(data, x, ridge) < 1e-8);
          }
}

// The bias is not penalized. So if a constant is added to all targets, only the bias changes.
BOOST_AUTO_TEST_CASE(a_bias_without_penalty) {
  auto data = random_samples(200, 3, 2);
  const auto solve_at = [&](double bias_ridge) {
    troupe::least_squares sums(3, 2, true);
    sums.add(data.x, data.y);
    return sums.solve(20, bias_ridge);
  };
  const auto here = solve_at(0);
  const auto penalized = solve_at(20);
  for (auto& y : data.y)
    y += 1000;
  const auto there = solve_at(0);
  for (std::size_t i = 0; i < here.weights.size(); ++i)
    BOOST_TEST(std::abs(there.weights[i] - here.weights[i])
               < 1e-4); // targets near 1000 have this precision in float
  for (std::size_t i = 0; i < here.bias.size(); ++i) {
    BOOST_TEST(std::abs(there.bias[i] - here.bias[i] - 1000) < 1e-4);
    BOOST_TEST(std::abs(solve_at(20).bias[i] - 1000 - penalized.bias[i]) > 1);
  }
}

BOOST_AUTO_TEST_CASE(blocks_make_no_difference) {
  const auto data = random_samples(1000, 5, 1);
  const auto whole = solve(data, true, 0.1);
  for (const std::size_t block : {1, 7, 999}) {
    const auto parts = solve(data, true, 0.1, block);
    check_close(std::span<const double>{parts.weights}, whole.weights, 1e-10, 1e-12, "weights");
  }
}

// Like years or heights above sea level, these features have means that are thousands of deviations
// away from 0.
BOOST_AUTO_TEST_CASE(large_means_cost_no_digits) {
  auto data = random_samples(2000, 2, 1);
  for (std::size_t i = 0; i < data.count(); ++i) {
    data.x[2 * i] = 50'000 + std::round(data.x[2 * i] * 64) / 64;
    data.x[2 * i + 1] = -20'000 + std::round(data.x[2 * i + 1] * 64) / 64;
    data.y[i] = 3 * (data.x[2 * i] - 50'000) - (data.x[2 * i + 1] + 20'000) / 2 + 1;
  }
  const auto x = solve(data, true, 0);
  BOOST_TEST_REQUIRE(x.dependent.empty());
  BOOST_TEST(std::abs(x.weights[0] - 3) < 1e-9);
  BOOST_TEST(std::abs(x.weights[1] + 0.5) < 1e-9);
}

BOOST_AUTO_TEST_CASE(features_that_depend_on_others_are_named) {
  auto data = random_samples(100, 5, 1);
  for (std::size_t i = 0; i < 100; ++i) {
    data.x[5 * i + 1] = 4.25F; // a constant feature depends on the bias
    // A feature that is a sum of others, except for rounding.
    data.x[5 * i + 3] = 2 * data.x[5 * i] - data.x[5 * i + 2] / 2 + 0.1F;
  }
  const auto x = solve(data, true, 0);
  BOOST_TEST(x.dependent == (std::vector<std::size_t>{1, 3}), boost::test_tools::per_element());
  BOOST_TEST(x.weights.empty());
  BOOST_TEST(solve(data, true, 1).dependent.empty());
  // Without a bias, the constant feature is independent. Feature 3 is now exactly a multiple of
  // another feature.
  for (std::size_t i = 0; i < 100; ++i)
    data.x[5 * i + 3] = 2 * data.x[5 * i];
  BOOST_TEST(solve(data, false, 0).dependent == std::vector<std::size_t>{3},
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(fewer_samples_than_unknowns) {
  const auto x = solve(random_samples(3, 5, 1), true, 0);
  BOOST_TEST(x.dependent == (std::vector<std::size_t>{2, 3, 4}), boost::test_tools::per_element());
  BOOST_TEST(solve(random_samples(0, 2, 1), true, 0).dependent.size() == 2U);
}

BOOST_AUTO_TEST_CASE(values_that_are_not_finite) {
  auto data = random_samples(10, 3, 1);
  troupe::least_squares sums(3, 1, false);
  sums.add(data.x, data.y);
  BOOST_TEST(sums.first_not_finite() == 4U);
  data.y[3] = std::numeric_limits<float>::infinity();
  sums.add(data.x, data.y);
  BOOST_TEST(sums.first_not_finite() == 3U);
  data.x[3 * 5 + 2] = std::numeric_limits<float>::quiet_NaN();
  sums.add(data.x, data.y);
  BOOST_TEST(sums.first_not_finite() == 2U);
}

BOOST_AUTO_TEST_CASE(sizes_must_fit) {
  troupe::least_squares sums(3, 2, true);
  const std::vector<float> x(7);
  BOOST_CHECK_THROW(sums.add(std::span{x}.first(6), std::span{x}.first(3)), std::invalid_argument);
  BOOST_CHECK_THROW(sums.add(std::span{x}.first(7), std::span{x}.first(4)), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
