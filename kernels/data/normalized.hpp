#pragma once

#include "kernels/data/dataset.hpp"

#include <memory>
#include <vector>

namespace troupe {

/// How features are shifted and scaled: x' = (x - shift) / scale. There is one entry per feature,
/// or one per channel. A channel's entry applies to an equal number of consecutive features.
struct feature_scaling {
  std::vector<double> shift;
  std::vector<double> scale; ///< not 0
};

/// The scaling that gives each feature mean 0 and variance 1 over the records (population, divisor
/// n). A constant feature is only shifted. Reads all records twice.
feature_scaling standardization(const dataset& records);

/// The scaling that maps the smallest value of each feature over the records to 0, and the largest
/// value to 1. A constant feature becomes 0. Reads all records.
feature_scaling unit_range(const dataset& records);

/// A data set with shifted and scaled features. The result shares ownership of `whole`.
/// @throws input_error if the features are not numbers, if their number is not a multiple of the
/// number of entries, or if `shift` and `scale` have different sizes or are empty.
std::shared_ptr<const dataset> normalized(std::shared_ptr<const dataset> whole,
                                          const feature_scaling& how);

} // namespace troupe
