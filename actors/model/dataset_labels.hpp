#pragma once

#include "kernels/data/dataset.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

/// Labels of records. One of the two vectors is empty.
struct record_labels {
  std::vector<std::int32_t> classes; ///< (records, labels_per_record)
  std::vector<float> targets;        ///< (records, label_width), row-major
};

/// Reads the labels of a data set. If the data set cannot read labels alone (dataset::read_labels),
/// this function also reads the features.
/// @param most if not 0, at most this number of records is read, evenly spaced; 0 means all.
record_labels read_labels(const dataset& data, std::uint64_t most = 0);

/// The number of records in each class.
/// @return (label_width); empty for targets, and for sequences with a label at each position
std::vector<std::uint64_t> count_classes(const dataset& data);

} // namespace troupe
