#include "kernels/data/arrays.hpp"

#include "kernels/data/table.hpp"
#include "kernels/error.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace troupe {

namespace {

[[noreturn]] void fail(std::string_view name, const std::string& what) {
  throw input_error(std::string{name} + ": " + what);
}

std::vector<double> numbers_of(const npy_array& x) {
  std::vector<double> result(x.size());
  for (std::uint64_t i = 0; i < result.size(); ++i)
    result[i] = x.at(i);
  return result;
}

std::vector<float> floats_of(const npy_array& x, std::string_view name) {
  std::vector<float> result(x.size());
  // Numbers that lose digits.
  std::vector<float32_spread> spreads(x.type == npy_type::f32 ? 0 : x.size() / x.shape[0]);
  for (std::uint64_t i = 0; i < result.size(); ++i) {
    const double value = x.at(i);
    if (!(std::abs(value) <= std::numeric_limits<float>::max()))
      fail(name,
           "record " + std::to_string(i / (result.size() / x.shape[0])) + " has the feature "
             + number_text(value) + "; expected finite numbers that fit float32");
    result[i] = static_cast<float>(value);
    if (!spreads.empty())
      spreads[i % spreads.size()].add(value);
  }
  for (std::size_t j = 0; j < spreads.size(); ++j)
    spreads[j].check(name, "feature " + std::to_string(j));
  return result;
}

shape dims_of(const npy_array& x) {
  std::vector<std::int64_t> dims(x.shape.begin() + 1, x.shape.end());
  if (dims.empty() || (x.type == npy_type::u8 && dims.size() == 2))
    dims.insert(dims.begin(), 1);
  return shape{std::move(dims)};
}

stored_labels labels_of(const npy_array& x, std::size_t classes, std::string_view name) {
  const auto numbers = numbers_of(x);
  if (are_classes(x))
    return stored_labels::as_classes(numbers, class_numbers::from_zero, classes, name);
  if (x.shape.size() > 2 || x.size() == 0)
    fail(name,
         "labels of shape " + shape_text(x.shape) + "; expected (records), or (records, width)");
  return stored_labels::as_targets(numbers, x.size() / x.shape[0], name);
}

} // namespace

bool are_classes(const npy_array& labels) noexcept {
  return labels.shape.size() == 1 && labels.type != npy_type::f32 && labels.type != npy_type::f64;
}

array_dataset::array_dataset(shape dims, std::vector<std::uint8_t> bytes, std::vector<float> floats,
                             stored_labels labels)
  : bytes_(std::move(bytes)), floats_(std::move(floats)), labels_(std::move(labels)) {
  record_.dims = std::move(dims);
  record_.labels = labels_.kind();
  record_.label_width = labels_.width();
  const auto numbers = bytes_.size() + floats_.size();
  if ((!bytes_.empty() && !floats_.empty()) || numbers != labels_.size() * record_.feature_width())
    throw input_error("arrays: " + std::to_string(numbers) + " numbers are not "
                      + std::to_string(labels_.size()) + " records of " + to_string(record_.dims));
}

void array_dataset::read(std::span<const std::uint64_t> records, feature_batch features,
                         label_batch labels) const {
  const auto width = record_.feature_width();
  float* out = features.numbers.data();
  for (const auto record : records) {
    if (bytes_.empty()) {
      std::copy_n(floats_.data() + record * width, width, out);
    } else {
      const std::uint8_t* row = bytes_.data() + record * width;
      for (std::size_t j = 0; j < width; ++j)
        out[j] = static_cast<float>(row[j]) / 255.0F;
    }
    out += width;
  }
  labels_.read(records, labels);
}

bool array_dataset::read_labels(std::span<const std::uint64_t> records, label_batch labels) const {
  labels_.read(records, labels);
  return true;
}

std::shared_ptr<const dataset> npy_records(const npy_array& features,
                                           std::string_view features_name, const npy_array& labels,
                                           std::string_view labels_name, std::size_t classes) {
  if (features.shape.empty() || labels.shape.empty())
    fail(features.shape.empty() ? features_name : labels_name,
         "a single number; expected an array whose first dimension counts records");
  if (features.shape[0] != labels.shape[0])
    fail(features_name,
         "shape " + shape_text(features.shape) + ", but " + std::string{labels_name} + " has shape "
           + shape_text(labels.shape) + "; the first dimensions, the records, should be the same");
  if (features.size() == 0)
    fail(features_name,
         "shape " + shape_text(features.shape) + ": no records, or records without features");
  auto label_values = labels_of(labels, classes, labels_name);
  std::vector<std::uint8_t> bytes;
  std::vector<float> floats;
  if (features.type == npy_type::u8) {
    const auto* first = reinterpret_cast<const std::uint8_t*>(features.values.data());
    bytes.assign(first, first + features.values.size());
  } else {
    floats = floats_of(features, features_name);
  }
  return std::make_shared<const array_dataset>(dims_of(features), std::move(bytes),
                                               std::move(floats), std::move(label_values));
}

} // namespace troupe
