#include "actors/model/dataset_labels.hpp"

#include "kernels/data/record_buffer.hpp"

#include <algorithm>
#include <optional>

namespace troupe {

namespace {

constexpr std::uint64_t at_once = 64;

} // namespace

record_labels read_labels(const dataset& data, std::uint64_t most) {
  const auto& shape = data.record();
  const auto count = most == 0 ? data.size() : std::min(data.size(), most);
  const auto n = count * shape.label_elements();
  record_labels result;
  if (shape.labels == label_kind::classes)
    result.classes.resize(n);
  else
    result.targets.resize(n);
  std::optional<record_buffer> buffer;
  if (!data.read_labels({}, {}))
    buffer.emplace(shape, at_once);
  std::vector<std::uint64_t> records;
  for (std::uint64_t begin = 0; begin < count; begin += at_once) {
    records.clear();
    for (auto i = begin; i < std::min(begin + at_once, count); ++i)
      records.push_back(count == data.size() ? i : i * data.size() / count);
    const auto part = [&](auto& all) {
      return all.empty() ? std::span{all}
                         : std::span{all}.subspan(begin * shape.label_elements(),
                                                  records.size() * shape.label_elements());
    };
    const label_batch out{part(result.classes), part(result.targets)};
    if (!buffer) {
      data.read_labels(records, out);
      continue;
    }
    buffer->read(data, records);
    std::ranges::copy(buffer->labels().classes, out.classes.begin());
    std::ranges::copy(buffer->labels().targets, out.targets.begin());
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
