#pragma once

#include "kernels/data/dataset.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

/// Labels of records: one of the two is empty.
struct record_labels {
  std::vector<std::int32_t> classes; ///< (records, labels_per_record)
  std::vector<float> targets;        ///< (records, label_width), row-major
};

/// Reads the labels of a data set, and its features only if it offers both together.
/// @param most reads at most this many records, at even distances. 0: all.
record_labels read_labels(const dataset& data, std::uint64_t most = 0);

/// How many records of a data set have each class.
/// @return (label_width); empty for targets, and for sequences that are labelled at each position
std::vector<std::uint64_t> count_classes(const dataset& data);

} // namespace troupe
