#pragma once

#include "kernels/data/dataset.hpp"
#include "kernels/data/labels.hpp"
#include "kernels/formats/libsvm.hpp"

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

namespace troupe {

/// Collects the features of records, one record after the other, as numbers or as sparse features.
class feature_rows {
public:
  /// @param kind numbers or sparse
  /// @param records the expected number of records; memory is reserved for them
  feature_rows(feature_kind kind, std::size_t width, std::size_t records);

  /// Begins the next record. All its features are 0.
  void begin();
  /// Sets a feature of the record. The features of a record are set in ascending order.
  void set(std::size_t feature, float value);

  /// Makes a data set of all records.
  /// @param name the name of the input in errors
  /// @throws input_error if the number of labels differs from that of records
  std::shared_ptr<const dataset> finish(stored_labels labels, std::string_view name) &&;

private:
  feature_kind kind_;
  std::size_t width_;
  std::vector<float> numbers_;
  libsvm_rows sparse_;
};

} // namespace troupe
