#include "kernels/data/table.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/printable.hpp"
#include "kernels/text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

namespace troupe {

void float32_spread::check(std::string_view name, const std::string& what) const {
  const auto size = std::max(std::abs(low_), std::abs(high_));
  // A float has 24 binary digits. If no number was added, low_ is above high_, the difference is
  // negative, and nothing is refused.
  if (!exact_ && high_ - low_ > 1e-12 * size && high_ - low_ < 0x1p-16 * size)
    throw input_error(std::string{name} + ": " + what + ": the values are from " + number_text(low_)
                      + " to " + number_text(high_) + ". Models compute in float32, which has only "
                      + "7 digits and cannot distinguish such values. Subtract " + number_text(low_)
                      + " from each value");
}

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
                                  std::span<const column_moments> how,
                                  std::span<const std::string> names, std::string_view path) {
  const auto width = how.size();
  std::vector<float> result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto& [mean, scale] = how[i % width];
    const auto scaled = (values[i] - mean) / scale;
    // The condition is negated so that NaN is refused, too.
    if (!(std::abs(scaled) <= std::numeric_limits<float>::max()))
      throw input_error(std::string{path} + ": record " + std::to_string(i / width) + ", column \""
                        + excerpt(names[i % width]) + "\": " + number_text(values[i])
                        + " is too large for float32, in which models compute (3.4e38); correct "
                          "it, or divide the column");
    result[i] = static_cast<float>(scaled);
  }
  for (std::size_t j = 0; j < width; ++j) {
    float32_spread spread;
    for (auto i = j; i < values.size(); i += width)
      spread.add((values[i] - how[j].mean) / how[j].scale);
    spread.check(path, "column \"" + excerpt(names[j]) + '"');
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
