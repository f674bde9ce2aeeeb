#include "kernels/data/table.hpp"

#include "kernels/error.hpp"

#include <cmath>
#include <limits>
#include <string>

namespace troupe {

namespace {

float as_float(double value, std::uint64_t row, std::size_t column) {
  if (!(std::abs(value) <= std::numeric_limits<float>::max()))
    throw input_error("table: record " + std::to_string(row) + ", column " + std::to_string(column)
                      + ": " + std::to_string(value) + " does not fit float32; scale the column");
  return static_cast<float>(value);
}

} // namespace

column_moments moments_of(std::span<const double> values, std::size_t width, std::size_t column,
                          std::span<const std::uint64_t> rows) {
  const auto count = static_cast<double>(rows.size());
  double mean = 0;
  for (const auto row : rows)
    mean += values[row * width + column] / count;
  double squares = 0;
  for (const auto row : rows) {
    const double d = values[row * width + column] - mean;
    squares += d * d / count;
  }
  const double deviation = std::sqrt(squares);
  const bool usable = std::isfinite(deviation) && deviation > 1e-12 * std::abs(mean);
  return {mean, usable ? deviation : 1.0};
}

std::vector<float> scaled_columns(std::span<const double> values,
                                  std::span<const column_moments> how) {
  const auto width = how.size();
  std::vector<float> result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto& [mean, scale] = how[i % width];
    result[i] = as_float((values[i] - mean) / scale, i / width, i % width);
  }
  return result;
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
