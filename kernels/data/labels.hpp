#pragma once

#include "kernels/data/dataset.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace troupe {

/// How a file numbers its classes.
enum class class_numbers : std::uint8_t {
  from_zero, ///< 0, 1, 2, ...
  from_one,  ///< 1, 2, 3, ... for the classes 0, 1, 2, ...
  signs,     ///< -1 and 1 for the classes 0 and 1
};

/// Guesses the numbering from the labels. `signs` if a label is negative; `from_one` if no label is
/// 0 and a label is above 1; otherwise `from_zero`.
class_numbers numbering_of(std::span<const double> labels) noexcept;

/// The labels of all records, in memory. They do not change after the construction, so any thread
/// may read.
class stored_labels {
public:
  stored_labels() = default;

  /// Labels that are classes.
  /// @param labels (records, per_record), row-major.
  /// @param classes number of classes. 0 means the largest class + 1, but at least 2.
  /// @param name the name of the input in errors.
  /// @param per_record number of labels of a record, above 0.
  /// @param ignored a number that is not a class but may occur as a label. The loss ignores it.
  /// @throws input_error that names the record, if a label is not a whole number or is outside the
  /// classes.
  static stored_labels as_classes(std::span<const double> labels, class_numbers numbering,
                                  std::size_t classes, std::string_view name,
                                  std::size_t per_record = 1,
                                  std::optional<std::int32_t> ignored = std::nullopt);

  /// Labels that are numbers to predict.
  /// @param labels (records, width), row-major; width > 0.
  /// @throws input_error that names the record, if a target is not finite as float32; input_error
  /// that names the target, if float32 cannot distinguish its values (float32_spread).
  static stored_labels as_targets(std::span<const double> labels, std::size_t width,
                                  std::string_view name);

  /// Labels for records whose labels are unknown. All labels are 0 and take no memory.
  /// @param as determines the kind and the sizes of the labels.
  static stored_labels absent(const record_shape& as, std::uint64_t records);

  /// Number of records.
  std::uint64_t size() const noexcept { return size_; }
  label_kind kind() const noexcept { return kind_; }
  /// For classes: the number of classes. For targets: floats per record.
  std::size_t width() const noexcept { return width_; }
  /// For classes: number of labels of a record.
  std::size_t per_record() const noexcept { return per_record_; }
  std::size_t memory_bytes() const noexcept;

  /// Like dataset::read.
  void read(std::span<const std::uint64_t> records, label_batch out) const;

private:
  std::uint64_t size_ = 0;
  label_kind kind_ = label_kind::classes;
  std::size_t width_ = 1;
  std::size_t per_record_ = 1;
  // Both are empty if the labels are absent.
  std::vector<std::int32_t> classes_;
  std::vector<float> targets_;
};

} // namespace troupe
