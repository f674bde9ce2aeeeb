#pragma once

#include "kernels/data/dataset.hpp"

#include <memory>
#include <vector>

namespace troupe {

/// How features are shifted and scaled: x' = (x - shift) / scale. There is one entry per feature,
/// or one per channel. The entry of a channel applies to all features of the channel, which are
/// consecutive.
struct feature_scaling {
  std::vector<double> shift;
  std::vector<double> scale; ///< not 0
};

/// The scaling that gives each feature the mean 0 and the variance 1 over the records (population
/// variance, divisor n). A constant feature is only shifted. Reads all records twice.
feature_scaling standardization(const dataset& records);

/// The scaling that maps the smallest value of each feature over the records to 0, and the largest
/// value to 1. A constant feature becomes 0. Reads all records.
feature_scaling unit_range(const dataset& records);

/// A data set with shifted and scaled features. The result shares ownership of `whole`. Of sparse
/// features, only the stored ones are shifted and scaled. So a feature whose shift is not 0 must be
/// stored in each record.
/// @param how `shift` and `scale` have the same size, which is not 0. The number of features is a
/// multiple of this size. For sparse features, it is this size.
/// @throws input_error if `how` does not fit, or if the features are tokens.
std::shared_ptr<const dataset> normalized(std::shared_ptr<const dataset> whole,
                                          const feature_scaling& how);

} // namespace troupe
