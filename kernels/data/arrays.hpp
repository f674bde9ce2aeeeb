#pragma once

#include "kernels/data/labels.hpp"
#include "kernels/formats/file.hpp"
#include "kernels/formats/npy.hpp"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The features of all records: bytes, float32, or int32 for tokens. The shape is (records,
/// dims...), row-major.
struct array_values {
  npy_type type = npy_type::f32;
  /// The numbers, which may be unaligned.
  std::span<const std::byte> bytes;
  /// Keeps the bytes alive.
  std::shared_ptr<const void> owner;
  /// True if the bytes are a mapped file, which takes no memory of its own. float32 numbers of such
  /// a file are checked only when they are read.
  bool mapped = false;
};

/// Arrays of numbers or tokens with labels. Features that are stored as bytes are read as x / 255.
class array_dataset final : public dataset {
public:
  /// @param dims shape of a record.
  /// @param vocabulary number of different tokens; only for int32.
  /// @param name the name of the input in errors.
  /// @throws input_error if the sizes do not fit.
  array_dataset(shape dims, array_values values, std::size_t vocabulary, stored_labels labels,
                std::string name);

  /// Makes a data set of floats in memory.
  array_dataset(shape dims, std::vector<float> numbers, stored_labels labels);

  std::uint64_t size() const noexcept override { return labels_.size(); }
  const record_shape& record() const noexcept override { return record_; }
  std::size_t memory_bytes() const noexcept override {
    return (values_.mapped ? 0 : values_.bytes.size()) + labels_.memory_bytes();
  }
  /// @throws input_error that names the record, if a number from a mapped file is not finite.
  void read(std::span<const std::uint64_t> records, feature_batch features,
            label_batch labels) const override;
  bool read_labels(std::span<const std::uint64_t> records, label_batch labels) const override;

private:
  array_values values_;
  stored_labels labels_;
  record_shape record_;
  std::string name_;
};

/// How npy_records reads two arrays.
struct array_reading {
  /// Number of classes. 0 means the largest class + 1, but at least 2 (see stored_labels).
  std::size_t classes = 0;
  /// If not 0, features that are whole numbers are tokens, and each token must be below this
  /// number, and not negative. With any_int32, negative numbers are accepted too.
  std::size_t vocabulary = 0;
  /// If true, labels of a whole-number type and shape (records, positions) are classes, one per
  /// position of a sequence.
  bool classes_per_position = false;
  /// A number that is not a class but may occur as a label. The loss ignores records or positions
  /// with this label.
  std::optional<std::int32_t> ignored_label = std::nullopt;
};

/// Makes a data set from two NumPy arrays.
///
/// uint8 features are kept as bytes and read as x / 255. If they have the shape (records, rows,
/// columns), they are grey images, and a record is (1, rows, columns). Bytes and float32 are not
/// copied. Labels of a whole-number type and shape (records) are classes from 0. All other labels
/// are targets, of shape (records) or (records, width).
/// @param features the array in `memory`.
/// @throws input_error that names the file, for:
/// - different numbers of features and labels, no records, or a record without features;
/// - a number that is not finite as float32 (in a mapped float32 array, found when the record is
///   read);
/// - a feature or target whose values float32 cannot distinguish (float32_spread);
/// - a token outside the vocabulary, or outside int32;
/// - labels of any other shape, or a label outside the classes (with its record).
std::shared_ptr<const dataset> npy_records(const npy_array& features, const shared_bytes& memory,
                                           std::string_view features_name, const npy_array& labels,
                                           std::string_view labels_name,
                                           const array_reading& how = {});

/// Makes a data set from a NumPy array without labels, for predictions. In all other respects, it
/// is like npy_records().
/// @param as the training records. The new records have the same shape and kind of features and
/// labels.
/// @throws input_error that names the file, like npy_records. Also if the records have another
/// shape than `as`.
std::shared_ptr<const dataset> npy_features(const npy_array& features, const shared_bytes& memory,
                                            std::string_view name, const record_shape& as);

/// True if the array has whole numbers.
bool has_whole_numbers(const npy_array& x) noexcept;

/// True if npy_records treats these labels as classes.
bool are_classes(const npy_array& labels) noexcept;

} // namespace troupe
