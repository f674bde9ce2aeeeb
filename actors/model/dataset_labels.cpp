#include "actors/model/dataset_labels.hpp"

#include <algorithm>

namespace troupe {

namespace {

constexpr std::uint64_t at_once = 64;

} // namespace

record_labels read_labels(const dataset& data, std::uint64_t most) {
  const auto& shape = data.record();
  const auto count = most == 0 ? data.size() : std::min(data.size(), most);
  record_labels result;
  std::vector<float> numbers;
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> row_starts;
  std::vector<std::int32_t> columns;
  for (std::uint64_t begin = 0; begin < count; begin += at_once) {
    std::vector<std::uint64_t> records;
    for (auto i = begin; i < std::min(begin + at_once, count); ++i)
      records.push_back(count == data.size() ? i : i * data.size() / count);
    const auto n = records.size();
    feature_batch features;
    if (shape.features == feature_kind::sparse) {
      const auto entries = data.entries(records);
      row_starts.assign(n + 1, 0);
      columns.resize(entries);
      numbers.resize(entries);
      features.sparse = {row_starts, columns, numbers};
    } else if (shape.features == feature_kind::tokens) {
      tokens.resize(n * shape.feature_width());
      features.tokens = tokens;
    } else {
      numbers.resize(n * shape.feature_width());
      features.numbers = numbers;
    }
    label_batch out;
    if (shape.labels == label_kind::classes) {
      result.classes.resize(result.classes.size() + n * shape.labels_per_record);
      out.classes = std::span{result.classes}.last(n * shape.labels_per_record);
    } else {
      result.targets.resize(result.targets.size() + n * shape.label_width);
      out.targets = std::span{result.targets}.last(n * shape.label_width);
    }
    data.read(records, features, out);
  }
  return result;
}

std::vector<std::uint64_t> count_classes(const dataset& data) {
  const auto& shape = data.record();
  if (shape.labels != label_kind::classes || shape.labels_per_record != 1)
    return {};
  std::vector<std::uint64_t> result(shape.label_width, 0);
  for (const auto which : read_labels(data).classes)
    if (which >= 0 && static_cast<std::size_t>(which) < result.size())
      ++result[static_cast<std::size_t>(which)];
  return result;
}

} // namespace troupe
