#pragma once

#include "kernels/data/dataset.hpp"

#include <memory>
#include <vector>

namespace troupe {

/// How features are shifted and scaled: x' = (x - shift) / scale. One entry per feature, or one per
/// channel, which applies to equally many consecutive features of a record.
struct feature_scaling {
  std::vector<double> shift;
  std::vector<double> scale; ///< not 0
};

/// Mean 0 and variance 1 of each feature over the records (population, divisor n); a feature that
/// is constant is only shifted. Reads all records twice.
feature_scaling standardization(const dataset& records);

/// 0 to 1, from the least to the largest value of each feature over the records; a constant feature
/// becomes 0. Reads all records.
feature_scaling unit_range(const dataset& records);

/// A data set with shifted and scaled features. Shares ownership of `whole`.
/// @throws input_error if the features are not numbers, or their number is no multiple of the
/// number of entries.
std::shared_ptr<const dataset> normalized(std::shared_ptr<const dataset> whole,
                                          const feature_scaling& how);

} // namespace troupe
