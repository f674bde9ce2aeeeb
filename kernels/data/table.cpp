#include "kernels/data/table.hpp"

#include "kernels/error.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace troupe {

namespace {

/// Mean and (population) standard deviation of column `column` of the first `rows` rows, in two
/// passes. A deviation that is 0, or not finite, becomes 1.
std::pair<double, double> moments(std::span<const double> values, std::size_t width,
                                  std::size_t column, std::uint64_t rows) {
  double sum = 0;
  for (std::uint64_t i = 0; i < rows; ++i)
    sum += values[i * width + column] / static_cast<double>(rows);
  double squares = 0;
  for (std::uint64_t i = 0; i < rows; ++i) {
    const double d = values[i * width + column] - sum;
    squares += d * d / static_cast<double>(rows);
  }
  const double deviation = std::sqrt(squares);
  const bool usable = std::isfinite(deviation) && deviation > 1e-12 * std::abs(sum);
  return {sum, usable ? deviation : 1.0};
}

float as_float(double value, std::uint64_t row, std::size_t column) {
  if (!(std::abs(value) <= std::numeric_limits<float>::max()))
    throw input_error("table: record " + std::to_string(row) + ", column " + std::to_string(column)
                      + ": " + std::to_string(value) + " does not fit float32; scale the column");
  return static_cast<float>(value);
}

} // namespace

table_dataset::table_dataset(std::span<const double> values, std::size_t features,
                             std::size_t targets, bool standardize, std::uint64_t training_rows)
  : rows_(features + targets == 0 ? 0 : values.size() / (features + targets)) {
  record_.dims = {static_cast<std::int64_t>(features)};
  record_.labels = label_kind::targets;
  record_.label_width = targets;
  const std::size_t width = features + targets;
  if (rows_ == 0 || rows_ * width != values.size())
    throw input_error("table: " + std::to_string(values.size()) + " values are not rows of "
                      + std::to_string(features) + " features and " + std::to_string(targets)
                      + " targets");
  if (training_rows == 0 || training_rows > rows_)
    throw input_error("table: " + std::to_string(training_rows) + " training records of "
                      + std::to_string(rows_) + "; expected 1 to " + std::to_string(rows_));
  values_.resize(values.size());
  for (std::size_t j = 0; j < width; ++j) {
    const auto [mean, scale] =
      standardize ? moments(values, width, j, training_rows) : std::pair{0.0, 1.0};
    for (std::uint64_t i = 0; i < rows_; ++i)
      values_[i * width + j] = as_float((values[i * width + j] - mean) / scale, i, j);
    (j < features ? scaling_.feature_mean : scaling_.target_mean).push_back(mean);
    (j < features ? scaling_.feature_scale : scaling_.target_scale).push_back(scale);
  }
}

void table_dataset::read(std::span<const std::uint64_t> records, feature_batch features,
                         label_batch labels) const {
  const std::size_t inputs = record_.feature_width();
  const std::size_t targets = record_.label_width;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const float* row = values_.data() + records[i] * (inputs + targets);
    std::copy_n(row, inputs, features.numbers.data() + i * inputs);
    std::copy_n(row + inputs, targets, labels.targets.data() + i * targets);
  }
}

std::vector<double> linear_coefficients(std::span<const float> weights, std::span<const float> bias,
                                        const column_scaling& scaling) {
  const std::size_t features = scaling.feature_mean.size();
  const std::size_t targets = scaling.target_mean.size();
  if (weights.size() != features * targets || (!bias.empty() && bias.size() != targets))
    throw input_error("linear model: " + std::to_string(weights.size()) + " weights and "
                      + std::to_string(bias.size()) + " biases do not fit "
                      + std::to_string(features) + " features and " + std::to_string(targets)
                      + " targets");
  std::vector<double> result;
  result.reserve(targets * (1 + features));
  for (std::size_t k = 0; k < targets; ++k) {
    const double scale = scaling.target_scale[k];
    const std::size_t intercept = result.size();
    result.push_back(scaling.target_mean[k] + (bias.empty() ? 0.0 : scale * double{bias[k]}));
    for (std::size_t j = 0; j < features; ++j) {
      const double coefficient =
        double{weights[k * features + j]} * scale / scaling.feature_scale[j];
      result.push_back(coefficient);
      result[intercept] -= coefficient * scaling.feature_mean[j];
    }
  }
  return result;
}

} // namespace troupe
