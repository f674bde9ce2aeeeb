#include "kernels/data/labels.hpp"

#include "kernels/data/table.hpp"
#include "kernels/error.hpp"
#include "kernels/text.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace troupe {

namespace {

/// Largest number of classes. Tensors hold a class as std::int32_t.
constexpr std::size_t most_classes = std::numeric_limits<std::int32_t>::max();

/// The class (from 0) of a label. -1 if the label is not one of the classes.
double class_of(double label, class_numbers numbering) noexcept {
  if (numbering == class_numbers::signs)
    return label == -1 ? 0 : label == 1 ? 1 : -1;
  const double result = label - (numbering == class_numbers::from_one ? 1 : 0);
  const bool valid =
    result >= 0 && result < static_cast<double>(most_classes) && result == std::floor(result);
  return valid ? result : -1;
}

/// The numbers of all classes in the file, as text: "0 to 9".
std::string range_of(std::size_t classes, class_numbers numbering) {
  const std::size_t first = numbering == class_numbers::from_one ? 1 : 0;
  return std::to_string(first) + " to " + std::to_string(first + classes - 1);
}

/// Advice for a label that is not one of the `classes` classes, if the labels seem to start at 1.
std::string start_advice(std::span<const double> labels, double label, std::size_t classes,
                         class_numbers numbering) {
  return numbering == class_numbers::from_zero && label == static_cast<double>(classes)
      && std::ranges::find(labels, 0.0) == labels.end()
    ? "; no record has label 0: do the labels start at 1?"
    : "";
}

} // namespace

class_numbers numbering_of(std::span<const double> labels) noexcept {
  if (std::ranges::any_of(labels, [](double x) { return x < 0; }))
    return class_numbers::signs;
  const bool zero = std::ranges::find(labels, 0.0) != labels.end();
  const bool above_one = std::ranges::any_of(labels, [](double x) { return x > 1; });
  return !zero && above_one ? class_numbers::from_one : class_numbers::from_zero;
}

stored_labels stored_labels::as_classes(std::span<const double> labels, class_numbers numbering,
                                        std::size_t classes, std::string_view name,
                                        std::size_t per_record,
                                        std::optional<std::int32_t> ignored) {
  stored_labels result;
  result.per_record_ = per_record;
  result.width_ = std::max<std::size_t>(classes, 2);
  result.classes_.reserve(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (ignored && labels[i] == *ignored) {
      result.classes_.push_back(*ignored);
      continue;
    }
    const double which = class_of(labels[i], numbering);
    const bool outside = classes != 0 && which >= static_cast<double>(classes);
    if (which < 0 || outside) {
      const std::string expected = numbering == class_numbers::signs ? "-1 or 1"
        : outside ? range_of(classes, numbering) + ": the model has " + std::to_string(classes)
          + " classes" + start_advice(labels, labels[i], classes, numbering)
                  : "a whole number from " + range_of(most_classes, numbering);
      throw input_error(std::string{name} + ": record " + std::to_string(i / per_record)
                        + " has label " + number_text(labels[i]) + "; expected " + expected);
    }
    result.classes_.push_back(static_cast<std::int32_t>(which));
    result.width_ = std::max(result.width_, static_cast<std::size_t>(which) + 1);
  }
  result.size_ = labels.size() / per_record;
  return result;
}

stored_labels stored_labels::as_targets(std::span<const double> labels, std::size_t width,
                                        std::string_view name) {
  stored_labels result;
  result.kind_ = label_kind::targets;
  result.width_ = width;
  result.targets_.reserve(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (!(std::abs(labels[i]) <= std::numeric_limits<float>::max()))
      throw input_error(std::string{name} + ": record " + std::to_string(i / width) + " has target "
                        + number_text(labels[i]) + "; expected a finite number that fits float32");
    result.targets_.push_back(static_cast<float>(labels[i]));
  }
  for (std::size_t column = 0; column < width; ++column) {
    float32_spread spread;
    for (auto i = column; i < labels.size(); i += width)
      spread.add(labels[i]);
    spread.check(name, width == 1 ? "the target" : "target " + std::to_string(column));
  }
  result.size_ = labels.size() / width;
  return result;
}

stored_labels stored_labels::absent(const record_shape& as, std::uint64_t records) {
  stored_labels result;
  result.size_ = records;
  result.kind_ = as.labels;
  result.width_ = as.label_width;
  result.per_record_ = as.labels_per_record;
  return result;
}

std::size_t stored_labels::memory_bytes() const noexcept {
  return (classes_.size() + targets_.size()) * sizeof(float);
}

void stored_labels::read(std::span<const std::uint64_t> records, label_batch out) const {
  if (classes_.empty() && targets_.empty()) {
    std::ranges::fill(out.classes, 0);
    std::ranges::fill(out.targets, 0.0F);
    return;
  }
  for (std::size_t i = 0; i < records.size(); ++i)
    if (kind_ == label_kind::classes)
      std::copy_n(classes_.data() + records[i] * per_record_, per_record_,
                  out.classes.data() + i * per_record_);
    else
      std::copy_n(targets_.data() + records[i] * width_, width_, out.targets.data() + i * width_);
}

} // namespace troupe
