#pragma once

#include "actors/model/data_builder.hpp"

#include <string>
#include <vector>

namespace troupe {

/// Which classes the parts of the data have.
struct class_view {
  /// A table: a row per class, a column per part; without indent. Empty if there are no classes.
  std::vector<std::string> lines;
  /// Classes that a part lacks, and parts that have far more or less of a class than others.
  std::vector<std::string> warnings;
};

/// Reads all labels.
/// @param split how the parts were made, for advice
class_view view_classes(const job_data& data, const proto::Data& split);

} // namespace troupe
