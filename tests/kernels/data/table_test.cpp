#include "kernels/data/table.hpp"

#include "tests/support/input_errors.hpp"

#include <array>
#include <cmath>
#include <utility>

BOOST_AUTO_TEST_SUITE(table)

using namespace troupe;
using namespace troupe::test;

namespace {

// A table with the columns 1 2 3 9, 5 5 5 5 (constant), and 10 20 30 90.
const std::vector<double> values{1, 5, 10, 2, 5, 20, 3, 5, 30, 9, 5, 90};
const std::vector<std::uint64_t> first_three{0, 1, 2};

} // namespace

BOOST_AUTO_TEST_CASE(moments_of_some_rows) {
  const double deviation = std::sqrt(2.0 / 3.0);
  const auto first = moments_of(values, 3, 0, first_three);
  BOOST_TEST(first.mean == 2.0, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(first.scale == deviation, boost::test_tools::tolerance(1e-12));
  // A constant column is shifted to 0, but not scaled.
  const auto constant = moments_of(values, 3, 1, first_three);
  BOOST_TEST(constant.mean == 5.0, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(constant.scale == 1.0);
  const std::vector<std::uint64_t> others{3, 0};
  BOOST_TEST(moments_of(values, 3, 2, others).mean == 50.0, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(columns_are_scaled) {
  const std::vector<column_moments> how{{2, 0.5}, {}, {10, 10}};
  const std::vector<std::string> names(3);
  const auto x = scaled_columns(std::span{values}.first(6), how, names, "table.csv");
  BOOST_TEST(x == (std::vector<float>{-2, 5, 0, 0, 5, 1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(values_beyond_float32) {
  const std::vector<double> extreme{1, 0, -1e300, 1};
  const std::vector<column_moments> how(2);
  const std::vector<std::string> names{"a", "b"};
  const auto error = error_of([&] { scaled_columns(extreme, how, names, "table.csv"); });
  BOOST_TEST(contains(error, "table.csv: record 1, column \"a\": -1e+300 is too large"));
}

BOOST_AUTO_TEST_CASE(differences_below_float32) {
  const auto problem = [](const std::vector<double>& numbers) {
    float32_spread spread;
    for (const auto x : numbers)
      spread.add(x);
    return error_of([&] { spread.check("x.csv", "column \"time\""); });
  };
  BOOST_TEST(problem({1.7e9 + 1, 1.7e9 + 600})
             == "x.csv: column \"time\": the values are from 1700000001 to 1700000600. "
                "Models compute in float32, which has only 7 digits and cannot distinguish such "
                "values. Subtract 1700000001 from each value");
  BOOST_TEST(contains(problem({-1000.00001, -1000}), "Subtract -1000.00001 from"));
  // These columns are accepted: numbers that float32 can represent, a wide range, a single number,
  // rounding errors, no numbers.
  for (const auto& fine : std::vector<std::vector<double>>{
         {100000, 100001}, {1.6e9 + 1, 1.7e9 + 1}, {0.1, 0.1}, {0.3, 0.1 + 0.2}, {}})
    BOOST_TEST(problem(fine) == "(no error)");
  // float32 cannot represent these numbers. After a shift, it can.
  const std::vector<double> times{1.7e9 + 1, 1.7e9 + 600};
  const std::vector<std::string> name{"time"};
  const std::vector<column_moments> raw(1);
  BOOST_TEST(contains(error_of([&] { scaled_columns(times, raw, name, "x.csv"); }), "Subtract"));
  const std::vector<column_moments> shifted{{1.7e9, 100}};
  BOOST_TEST(scaled_columns(times, shifted, name, "x.csv").size() == 2u);
}

// Coefficients are computed in standardized units and converted to units of the data, where y = 3 +
// 2 a - 0.5 b.
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
