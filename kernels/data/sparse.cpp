#include "kernels/data/sparse.hpp"

#include "kernels/error.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

sparse_dataset::sparse_dataset(libsvm_rows rows, std::size_t features, stored_labels labels,
                               std::string_view name)
  : rows_(std::move(rows)), labels_(std::move(labels)) {
  const auto fail = [&](const std::string& what) {
    throw input_error(std::string{name} + ": " + what);
  };
  if (rows_.width > features)
    fail("index " + std::to_string(rows_.width) + " is beyond the " + std::to_string(features)
         + " features");
  if (features == 0)
    fail("all rows are empty, so there are no features");
  if (labels_.size() != rows_.row_starts.size() - 1)
    fail(std::to_string(rows_.row_starts.size() - 1) + " rows, but "
         + std::to_string(labels_.size()) + " labels");
  rows_.labels = {};
  record_.features = feature_kind::sparse;
  record_.dims = {static_cast<std::int64_t>(features)};
  record_.labels = labels_.kind();
  record_.label_width = labels_.width();
}

std::size_t sparse_dataset::memory_bytes() const noexcept {
  return rows_.row_starts.size() * sizeof(std::uint64_t)
    + rows_.columns.size() * (sizeof(std::uint32_t) + sizeof(float)) + labels_.memory_bytes();
}

std::uint64_t sparse_dataset::entries(std::span<const std::uint64_t> records) const {
  std::uint64_t result = 0;
  for (const auto record : records)
    result += rows_.row_starts[record + 1] - rows_.row_starts[record];
  return result;
}

void sparse_dataset::read(std::span<const std::uint64_t> records, feature_batch features,
                          label_batch labels) const {
  const auto& out = features.sparse;
  auto next = out.row_starts[0];
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto begin = rows_.row_starts[records[i]];
    const auto n = rows_.row_starts[records[i] + 1] - begin;
    std::copy_n(rows_.columns.data() + begin, n, out.columns.data() + next);
    std::copy_n(rows_.values.data() + begin, n, out.values.data() + next);
    next += static_cast<std::int32_t>(n);
    out.row_starts[i + 1] = next;
  }
  labels_.read(records, labels);
}

bool sparse_dataset::read_labels(std::span<const std::uint64_t> records, label_batch labels) const {
  labels_.read(records, labels);
  return true;
}

} // namespace troupe
