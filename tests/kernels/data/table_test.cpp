#include "kernels/data/table.hpp"

#include "tests/support/input_errors.hpp"

#include <array>
#include <cmath>

BOOST_AUTO_TEST_SUITE(table)

using namespace troupe;
using namespace troupe::test;

namespace {

// Columns: 1 2 3 9, constant 5, 10 20 30 90.
const std::vector<double> values{1, 5, 10, 2, 5, 20, 3, 5, 30, 9, 5, 90};
const std::vector<std::uint64_t> first_three{0, 1, 2};

} // namespace

BOOST_AUTO_TEST_CASE(moments_of_some_rows) {
  const double deviation = std::sqrt(2.0 / 3.0);
  const auto first = moments_of(values, 3, 0, first_three);
  BOOST_TEST(first.mean == 2.0, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(first.scale == deviation, boost::test_tools::tolerance(1e-12));
  // A constant column is only shifted.
  const auto constant = moments_of(values, 3, 1, first_three);
  BOOST_TEST(constant.mean == 5.0, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(constant.scale == 1.0);
  const std::vector<std::uint64_t> others{3, 0};
  BOOST_TEST(moments_of(values, 3, 2, others).mean == 50.0, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(columns_are_scaled) {
  const std::vector<column_moments> how{{2, 0.5}, {}, {10, 10}};
  const auto x = scaled_columns(std::span{values}.first(6), how);
  BOOST_TEST(x == (std::vector<float>{-2, 5, 0, 0, 5, 1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(values_beyond_float32) {
  const std::vector<double> extreme{1, 0, -1e300, 1};
  const std::vector<column_moments> how(2);
  const auto error = error_of([&] { scaled_columns(extreme, how); });
  BOOST_TEST(contains(error, "record 1, column 0"));
  BOOST_TEST(contains(error, "does not fit float32"));
}

// y = 3 + 2 a - 0.5 b, given in standardized units, comes back in the units of the data.
BOOST_AUTO_TEST_CASE(coefficients_in_units_of_the_data) {
  std::vector<double> rows;
  for (const auto& [a, b] : {std::pair{1.0, 2.0}, {4.0, -3.0}, {-2.0, 0.5}, {0.0, 7.0}})
    rows.insert(rows.end(), {a, b, 3 + 2 * a - 0.5 * b});
  const std::vector<std::uint64_t> all{0, 1, 2, 3};
  const auto x = moments_of(rows, 3, 0, all);
  const auto y = moments_of(rows, 3, 1, all);
  const auto target = moments_of(rows, 3, 2, all);
  const column_scaling s{{x.mean, y.mean}, {x.scale, y.scale}, {target.mean}, {target.scale}};
  const std::array<float, 2> weights{
    static_cast<float>(2 * s.feature_scale[0] / s.target_scale[0]),
    static_cast<float>(-0.5 * s.feature_scale[1] / s.target_scale[0])};
  const std::array<float, 1> bias{0};
  const auto c = linear_coefficients(weights, bias, s);
  BOOST_REQUIRE(c.size() == 3u);
  BOOST_TEST(c[0] == 3.0, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(c[1] == 2.0, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(c[2] == -0.5, boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(coefficients_without_standardization) {
  const column_scaling none{{0}, {1}, {0, 0}, {1, 1}};
  const std::array<float, 2> weights{2, -1};
  const std::array<float, 2> bias{7, 8};
  BOOST_TEST(linear_coefficients(weights, bias, none) == (std::vector<double>{7, 2, 8, -1}));
  BOOST_TEST(linear_coefficients(weights, {}, none) == (std::vector<double>{0, 2, 0, -1}));
  BOOST_TEST(contains(error_of([&] { linear_coefficients(bias, weights, {}); }), "do not fit"));
}

BOOST_AUTO_TEST_SUITE_END()
