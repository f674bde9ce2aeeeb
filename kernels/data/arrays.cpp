#include "kernels/data/arrays.hpp"

#include "kernels/data/table.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/parsing.hpp"
#include "kernels/text.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

namespace troupe {

namespace {

std::vector<double> numbers_of(const npy_array& x) {
  std::vector<double> result(x.size());
  for (std::uint64_t i = 0; i < result.size(); ++i)
    result[i] = x.at(i);
  return result;
}

template <class T>
array_values own(npy_type type, std::vector<T> numbers) {
  const auto owner = std::make_shared<const std::vector<T>>(std::move(numbers));
  return {type, std::as_bytes(std::span{*owner}), owner, false};
}

bool fits_float32(double x) noexcept {
  return std::abs(x) <= std::numeric_limits<float>::max();
}

[[noreturn]] void refuse_number(std::string_view name, std::uint64_t record, double value) {
  reject(name,
         "record " + std::to_string(record) + " has the feature " + number_text(value)
           + "; expected finite numbers that fit float32");
}

/// Throws unless all numbers of the array are finite as float32. `width` is the number of features
/// of a record.
void check_floats(const npy_array& x, std::size_t width, std::string_view name) {
  for (std::uint64_t i = 0; i < x.size(); ++i)
    if (!fits_float32(x.at(i)))
      refuse_number(name, i / width, x.at(i));
}

/// Converts the features to float32. Throws input_error if a number is not finite as float32.
/// @param lost_digits if true, also refuses a feature whose values float32 cannot distinguish.
array_values floats_of(const npy_array& x, std::size_t width, bool lost_digits,
                       std::string_view name) {
  std::vector<float> result(x.size());
  std::vector<float32_spread> spreads(width);
  for (std::uint64_t i = 0; i < result.size(); ++i) {
    const double value = x.at(i);
    if (!fits_float32(value))
      refuse_number(name, i / width, value);
    result[i] = static_cast<float>(value);
    spreads[i % width].add(value);
  }
  for (std::size_t j = 0; j < width && lost_digits; ++j)
    spreads[j].check(name, "feature " + std::to_string(j));
  return own(npy_type::f32, std::move(result));
}

array_values tokens_of(const npy_array& x, std::size_t width, std::size_t vocabulary,
                       std::string_view name) {
  const double least = vocabulary == any_int32 ? std::numeric_limits<std::int32_t>::min() : 0;
  std::vector<std::int32_t> result(x.size());
  for (std::uint64_t i = 0; i < result.size(); ++i) {
    const double value = x.at(i);
    if (!(value >= least && value < static_cast<double>(vocabulary)))
      reject(name,
             "record " + std::to_string(i / width) + " has the token " + number_text(value)
               + (vocabulary == any_int32 ? "; expected whole numbers that fit int32"
                                          : "; expected 0 to " + std::to_string(vocabulary - 1)
                      + ", the entries of the embedding"));
    result[i] = static_cast<std::int32_t>(value);
  }
  return own(npy_type::i32, std::move(result));
}

/// The features of the data set. Arrays of uint8 and float32 are not copied.
/// @param training true if the records are for training. They will then be read in random order,
/// and features that float32 cannot distinguish are refused.
array_values values_of(const npy_array& x, const shared_bytes& memory, std::size_t vocabulary,
                       bool training, std::string_view name) {
  const auto width = x.size() / x.shape[0];
  if (vocabulary != 0 && has_whole_numbers(x))
    return tokens_of(x, width, vocabulary, name);
  if (x.type != npy_type::u8 && x.type != npy_type::f32)
    return floats_of(x, width, training, name);
  if (x.type == npy_type::f32 && !memory.mapped)
    check_floats(x, width, name);
  if (training)
    expect_random_access(memory);
  return {x.type, x.values, memory.owner, memory.mapped};
}

shape dims_of(const npy_array& x, npy_type kept) {
  std::vector<std::int64_t> dims(x.shape.begin() + 1, x.shape.end());
  if (dims.empty() || (kept == npy_type::u8 && dims.size() == 2))
    dims.insert(dims.begin(), 1);
  return shape{std::move(dims)};
}

stored_labels labels_of(const npy_array& x, const array_reading& how, std::string_view name) {
  const auto numbers = numbers_of(x);
  const bool per_position =
    how.classes_per_position && x.shape.size() == 2 && x.size() > 0 && has_whole_numbers(x);
  if (are_classes(x) || per_position)
    return stored_labels::as_classes(numbers, class_numbers::from_zero, how.classes, name,
                                     per_position ? x.size() / x.shape[0] : 1, how.ignored_label);
  if (x.shape.size() > 2 || x.size() == 0)
    reject(name,
           "labels of shape " + shape_text(x.shape) + "; expected (records), or (records, width)");
  return stored_labels::as_targets(numbers, x.size() / x.shape[0], name);
}

} // namespace

bool has_whole_numbers(const npy_array& x) noexcept {
  return x.type != npy_type::f32 && x.type != npy_type::f64;
}

bool are_classes(const npy_array& labels) noexcept {
  return labels.shape.size() == 1 && has_whole_numbers(labels);
}

array_dataset::array_dataset(shape dims, array_values values, std::size_t vocabulary,
                             stored_labels labels, std::string name)
  : values_(std::move(values)), labels_(std::move(labels)), name_(std::move(name)) {
  if (values_.type == npy_type::i32) {
    record_.features = feature_kind::tokens;
    record_.vocabulary = vocabulary;
  }
  record_.dims = std::move(dims);
  record_.labels = labels_.kind();
  record_.label_width = labels_.width();
  record_.labels_per_record = labels_.per_record();
  const auto numbers = values_.bytes.size() / element_size(values_.type);
  if (numbers != labels_.size() * record_.feature_width())
    throw input_error(name_ + ": " + std::to_string(numbers) + " numbers do not make "
                      + std::to_string(labels_.size()) + " records of " + to_string(record_.dims));
}

array_dataset::array_dataset(shape dims, std::vector<float> numbers, stored_labels labels)
  : array_dataset(std::move(dims), own(npy_type::f32, std::move(numbers)), 0, std::move(labels),
                  "arrays") {}

void array_dataset::read(std::span<const std::uint64_t> records, feature_batch features,
                         label_batch labels) const {
  const auto width = record_.feature_width();
  const auto bytes = width * element_size(values_.type);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto* row = values_.bytes.data() + records[i] * bytes;
    if (values_.type == npy_type::i32) {
      std::memcpy(features.tokens.data() + i * width, row, bytes);
      continue;
    }
    float* out = features.numbers.data() + i * width;
    if (values_.type == npy_type::f32)
      std::memcpy(out, row, bytes);
    else
      for (std::size_t j = 0; j < width; ++j)
        out[j] = static_cast<float>(std::to_integer<std::uint8_t>(row[j])) / 255.0F;
    if (values_.mapped && values_.type == npy_type::f32)
      for (std::size_t j = 0; j < width; ++j)
        if (!std::isfinite(out[j]))
          refuse_number(name_, records[i], out[j]);
  }
  labels_.read(records, labels);
}

bool array_dataset::read_labels(std::span<const std::uint64_t> records, label_batch labels) const {
  labels_.read(records, labels);
  return true;
}

std::shared_ptr<const dataset> npy_records(const npy_array& features, const shared_bytes& memory,
                                           std::string_view features_name, const npy_array& labels,
                                           std::string_view labels_name, const array_reading& how) {
  if (features.shape.empty() || labels.shape.empty())
    reject(features.shape.empty() ? features_name : labels_name,
           "a single number; expected an array whose first dimension counts records");
  if (features.shape[0] != labels.shape[0])
    reject(features_name,
           "shape " + shape_text(features.shape) + ", but " + std::string{labels_name}
             + " has shape " + shape_text(labels.shape)
             + "; the first dimensions, the records, should be the same");
  if (features.size() == 0)
    reject(features_name,
           "shape " + shape_text(features.shape) + ": no records, or records without features");
  auto label_values = labels_of(labels, how, labels_name);
  auto values = values_of(features, memory, how.vocabulary, true, features_name);
  const auto kept = values.type;
  return std::make_shared<const array_dataset>(dims_of(features, kept), std::move(values),
                                               how.vocabulary, std::move(label_values),
                                               std::string{features_name});
}

std::shared_ptr<const dataset> npy_features(const npy_array& features, const shared_bytes& memory,
                                            std::string_view name, const record_shape& as) {
  if (features.shape.empty() || features.size() == 0)
    reject(name, "shape " + shape_text(features.shape) + ": no records");
  auto values = values_of(features, memory, as.vocabulary, false, name);
  const auto kept = values.type;
  auto result = std::make_shared<const array_dataset>(
    dims_of(features, kept), std::move(values), as.vocabulary,
    stored_labels::absent(as, features.shape[0]), std::string{name});
  if (result->record() != as)
    reject(name,
           "records of " + to_string(result->record().dims) + " "
             + std::string{to_string(result->record().features)}
             + "; the model was trained with records of " + to_string(as.dims) + " "
             + std::string{to_string(as.features)});
  return result;
}

} // namespace troupe
