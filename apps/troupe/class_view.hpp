#pragma once

#include "actors/model/data_builder.hpp"

#include <string>
#include <vector>

namespace troupe {

/// How many records of each class are in each part of the data (train, validation, test).
struct class_view {
  /// The lines of a table, without indentation: a row for each class and a column for each part.
  /// Empty if there are no classes.
  std::vector<std::string> lines;
  /// Warnings about classes that are missing from a part of the data, or whose share of one part
  /// differs much from their share of all records.
  std::vector<std::string> warnings;
};

/// Reads all labels to count the classes.
/// @param split how the parts were made, for advice in the warnings
class_view view_classes(const job_data& data, const proto::Data& split);

} // namespace troupe
