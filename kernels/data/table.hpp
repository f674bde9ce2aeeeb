#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// How the columns of a table were shifted and scaled before training: standardized = (value -
/// mean) / scale.
struct column_scaling {
  std::vector<double> feature_mean;  ///< (features); 0 when not standardized
  std::vector<double> feature_scale; ///< (features); 1 when not standardized or constant
  std::vector<double> target_mean;   ///< (targets)
  std::vector<double> target_scale;  ///< (targets)
};

/// How a column is standardized: standardized = (value - mean) / scale.
struct column_moments {
  double mean = 0;
  double scale = 1;
};

/// The mean of a column over some rows, and its standard deviation (population, divisor n) as the
/// scale. If the deviation is not finite, or is at most 1e-12 of the mean's absolute value, the
/// scale is 1 instead.
/// @param values (rows, width), row-major
/// @param column below width
/// @param rows the rows to use: at least one
column_moments moments_of(std::span<const double> values, std::size_t width, std::size_t column,
                          std::span<const std::uint64_t> rows);

/// Finds the smallest and the largest of some numbers, to check whether float32 can distinguish
/// them.
class float32_spread {
public:
  void add(double x) noexcept {
    low_ = x < low_ ? x : low_;
    high_ = x > high_ ? x : high_;
    exact_ = exact_ && double{static_cast<float>(x)} == x;
  }

  /// Throws input_error if float32 would lose the differences between the numbers. This is the case
  /// if float32 rounds the numbers, and can represent fewer than 256 values between the smallest
  /// and the largest number. Numbers that differ by at most 1e-12 of their size count as equal.
  /// @param name the beginning of the error: "x.csv", "column \"time\""
  void check(std::string_view name, const std::string& what) const;

private:
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
  bool exact_ = true;
};

/// Shifts and scales each column of a table, and converts the result to float32.
/// @param values (rows, width), row-major
/// @param how (width)
/// @param names (width), for errors
/// @param path the table's name in errors
/// @throws input_error that names record and column: a value that does not fit into float32; a
/// column that float32_spread refuses.
std::vector<float> scaled_columns(std::span<const double> values,
                                  std::span<const column_moments> how,
                                  std::span<const std::string> names, std::string_view path);

/// Converts a linear model back to the units of the data. For each target, the result is the
/// intercept, followed by one coefficient per feature.
///
/// The model is y' = W x' + b for standardized x' = (x - m) / s and y' = (y - my) / sy. Then
///   coefficient_j = W_j sy / s_j,   intercept = my + sy b - sum_j coefficient_j m_j.
/// @param weights (targets, features), row-major
/// @param bias (targets). Empty if the model has no bias.
/// @return (targets, 1 + features), row-major
/// @throws input_error if sizes do not fit.
std::vector<double> linear_coefficients(std::span<const float> weights, std::span<const float> bias,
                                        const column_scaling& scaling);

} // namespace troupe
