#pragma once

#include "kernels/data/labels.hpp"
#include "kernels/formats/npy.hpp"

#include <memory>
#include <string_view>
#include <vector>

namespace troupe {

/// Arrays of numbers with labels. The numbers are bytes, read as x / 255, or floats.
class array_dataset final : public dataset {
public:
  /// @param dims shape of a record.
  /// @param bytes, floats one of the two is empty; (records, dims...), row-major.
  /// @throws input_error if the sizes do not fit.
  array_dataset(shape dims, std::vector<std::uint8_t> bytes, std::vector<float> floats,
                stored_labels labels);

  std::uint64_t size() const noexcept override { return labels_.size(); }
  const record_shape& record() const noexcept override { return record_; }
  std::size_t memory_bytes() const noexcept override {
    return bytes_.size() + floats_.size() * sizeof(float) + labels_.memory_bytes();
  }
  void read(std::span<const std::uint64_t> records, feature_batch features,
            label_batch labels) const override;
  bool read_labels(std::span<const std::uint64_t> records, label_batch labels) const override;

private:
  std::vector<std::uint8_t> bytes_;
  std::vector<float> floats_;
  stored_labels labels_;
  record_shape record_;
};

/// A data set from two NumPy arrays in memory: features (records, ...), labels.
///
/// uint8 features are kept as bytes and read as x / 255; (records, rows, columns) of them are grey
/// images, records of (1, rows, columns). Labels of a whole-number type and shape (records) are
/// classes from 0; others are targets, (records) or (records, width).
/// @param classes like in stored_labels.
/// @throws input_error that names the file: different numbers of features and labels, no records, a
/// record without features, a number that is not finite as float32, labels of another rank, or a
/// label outside the classes (with its record).
std::shared_ptr<const dataset> npy_records(const npy_array& features,
                                           std::string_view features_name, const npy_array& labels,
                                           std::string_view labels_name, std::size_t classes = 0);

/// True if npy_records treats these labels as classes.
bool are_classes(const npy_array& labels) noexcept;

} // namespace troupe
