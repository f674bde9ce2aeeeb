#pragma once

#include "kernels/data/dataset.hpp"
#include "kernels/formats/csv.hpp"

#include <memory>
#include <span>
#include <vector>

namespace troupe {

/// How the columns of a table were shifted and scaled: standardized = (value - mean) / scale.
struct column_scaling {
  std::vector<double> feature_mean;  ///< (features); 0 when not standardized
  std::vector<double> feature_scale; ///< (features); 1 when not standardized or constant
  std::vector<double> target_mean;   ///< (targets)
  std::vector<double> target_scale;  ///< (targets)
};

/// Numbers in columns: the first ones are features, the rest are targets. Kept as floats,
/// standardized where asked.
class table_dataset final : public dataset {
public:
  /// @param values (rows, features + targets), row-major; rows >= 1.
  /// @param standardize subtract the mean and divide by the standard deviation (population, divisor
  /// n) of the first `training_rows` rows, each column for itself; a constant column is only
  /// shifted.
  /// @throws input_error when sizes do not fit, training_rows is 0 or above the number of rows, or
  /// a value does not fit float32.
  table_dataset(std::span<const double> values, std::size_t features, std::size_t targets,
                bool standardize, std::uint64_t training_rows);

  std::uint64_t size() const noexcept override { return rows_; }
  const record_shape& record() const noexcept override { return record_; }
  std::size_t memory_bytes() const noexcept override { return values_.size() * sizeof(float); }
  void read(std::span<const std::uint64_t> records, feature_batch features,
            label_batch labels) const override;

  /// Mean 0 and scale 1 everywhere when not standardized.
  const column_scaling& scaling() const noexcept { return scaling_; }

private:
  std::uint64_t rows_;
  record_shape record_;
  column_scaling scaling_;
  std::vector<float> values_; // (rows, features + targets)
};

/// The coefficients of a linear model in the units of the data: per target the intercept, then one
/// per feature.
///
/// With y' = W x' + b over standardized x' = (x - m) / s and y' = (y - my) / sy:
///   coefficient_j = W_j sy / s_j,   intercept = my + sy b - sum_j coefficient_j m_j.
/// @param weights (targets, features), row-major
/// @param bias (targets); empty: no bias
/// @return (targets, 1 + features), row-major
/// @throws input_error when sizes do not fit.
std::vector<double> linear_coefficients(std::span<const float> weights, std::span<const float> bias,
                                        const column_scaling& scaling);

} // namespace troupe
