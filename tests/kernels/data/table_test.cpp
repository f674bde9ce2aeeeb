#include "kernels/data/table.hpp"

#include "tests/support/input_errors.hpp"

#include <array>
#include <cmath>

BOOST_AUTO_TEST_SUITE(table)

using namespace troupe;
using namespace troupe::test;

namespace {

// Columns: 1 2 3 9, constant 5, target 10 20 30 90.
const std::vector<double> values{1, 5, 10, 2, 5, 20, 3, 5, 30, 9, 5, 90};

std::vector<float> targets_of(const table_dataset& data) {
  std::vector<std::uint64_t> records(data.size());
  for (std::size_t i = 0; i < records.size(); ++i)
    records[i] = i;
  std::vector<float> features(data.size() * data.record().feature_width());
  std::vector<float> targets(data.size() * data.record().label_width);
  data.read(records, std::span<float>{features}, {{}, targets});
  return targets;
}

} // namespace

BOOST_AUTO_TEST_CASE(as_it_is) {
  const table_dataset data{values, 2, 1, false, 4};
  BOOST_TEST(data.size() == 4u);
  BOOST_TEST(data.record().feature_width() == 2u);
  BOOST_TEST(data.record().label_width == 1u);
  BOOST_TEST((data.record().labels == label_kind::targets));
  const std::array<std::uint64_t, 2> records{3, 0};
  std::array<float, 4> features{};
  std::array<float, 2> targets{};
  data.read(records, std::span<float>{features}, {{}, targets});
  BOOST_TEST(features == (std::array<float, 4>{9, 5, 1, 5}), boost::test_tools::per_element());
  BOOST_TEST(targets == (std::array<float, 2>{90, 10}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(standardized_by_the_training_records) {
  const table_dataset data{values, 2, 1, true, 3};
  const double deviation = std::sqrt(2.0 / 3.0);
  BOOST_TEST(data.scaling().feature_mean == (std::vector<double>{2, 5}));
  BOOST_TEST(data.scaling().feature_scale[0] == deviation, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(data.scaling().feature_scale[1] == 1.0); // a constant column is only shifted
  BOOST_TEST(data.scaling().target_mean[0] == 20.0, boost::test_tools::tolerance(1e-12));
  const auto targets = targets_of(data);
  BOOST_TEST(targets[1] == 0.0F);
  BOOST_TEST(targets[0] == static_cast<float>(-1 / deviation), boost::test_tools::tolerance(1e-6F));
  BOOST_TEST(targets[3] == static_cast<float>(7 / deviation), boost::test_tools::tolerance(1e-6F));
}

BOOST_AUTO_TEST_CASE(values_beyond_float32) {
  const std::vector<double> extreme{1, 0, -1e300, 1};
  const auto build = [&](bool standardize) { table_dataset{extreme, 1, 1, standardize, 2}; };
  BOOST_TEST(contains(error_of([&] { build(false); }), "record 1, column 0"));
  BOOST_TEST(contains(error_of([&] { build(true); }), "does not fit float32"));
}

// y = 3 + 2 a - 0.5 b, given in standardized units, comes back in the units of the data.
BOOST_AUTO_TEST_CASE(coefficients_in_units_of_the_data) {
  std::vector<double> rows;
  for (const auto& [a, b] : {std::pair{1.0, 2.0}, {4.0, -3.0}, {-2.0, 0.5}, {0.0, 7.0}})
    rows.insert(rows.end(), {a, b, 3 + 2 * a - 0.5 * b});
  const table_dataset data{rows, 2, 1, true, 4};
  const auto& s = data.scaling();
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
  const table_dataset data{values, 1, 2, false, 4};
  const std::array<float, 2> weights{2, -1};
  const std::array<float, 2> bias{7, 8};
  BOOST_TEST(linear_coefficients(weights, bias, data.scaling())
             == (std::vector<double>{7, 2, 8, -1}));
  BOOST_TEST(linear_coefficients(weights, {}, data.scaling())
             == (std::vector<double>{0, 2, 0, -1}));
  BOOST_TEST(contains(error_of([&] { linear_coefficients(bias, weights, {}); }), "do not fit"));
}

BOOST_AUTO_TEST_CASE(errors) {
  BOOST_TEST(contains(error_of([] { table_dataset(std::vector<double>(5), 2, 1, false, 1); }),
                      "not rows of 2 features"));
  BOOST_TEST(contains(error_of([] { table_dataset({}, 2, 1, false, 1); }), "not rows"));
  BOOST_TEST(contains(error_of([] { table_dataset(values, 2, 1, true, 0); }), "expected 1 to 4"));
  BOOST_TEST(contains(error_of([] { table_dataset(values, 2, 1, true, 5); }), "expected 1 to 4"));
}

BOOST_AUTO_TEST_SUITE_END()
