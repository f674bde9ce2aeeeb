#include "kernels/data/record_buffer.hpp"

#include <numeric>

namespace troupe {

record_buffer::record_buffer(const record_shape& what, std::size_t most)
  : what_(what), most_(most) {
  if (what_.features == feature_kind::tokens)
    tokens_.resize(most * what_.feature_width());
  else if (what_.features == feature_kind::numbers)
    numbers_.resize(most * what_.feature_width());
  if (what_.labels == label_kind::classes)
    classes_.resize(most * what_.label_elements());
  else
    targets_.resize(most * what_.label_elements());
}

void record_buffer::read(const dataset& set, std::span<const std::uint64_t> records) {
  const auto rows = records.size();
  features_ = {};
  labels_ = {};
  switch (what_.features) {
  case feature_kind::numbers:
    features_.numbers = std::span{numbers_}.first(rows * what_.feature_width());
    break;
  case feature_kind::tokens:
    features_.tokens = std::span{tokens_}.first(rows * what_.feature_width());
    break;
  case feature_kind::sparse:
    row_starts_.assign(rows + 1, 0);
    columns_.resize(set.entries(records));
    numbers_.resize(columns_.size());
    features_.sparse = {row_starts_, columns_, numbers_};
    break;
  }
  if (what_.labels == label_kind::classes)
    labels_.classes = std::span{classes_}.first(rows * what_.label_elements());
  else
    labels_.targets = std::span{targets_}.first(rows * what_.label_elements());
  set.read(records, features_, labels_);
}

void record_buffer::read(const dataset& set, std::uint64_t first, std::size_t count) {
  records_.resize(count);
  std::iota(records_.begin(), records_.end(), first);
  read(set, records_);
}

std::size_t record_buffer::memory_bytes(const record_shape& what, std::size_t most) noexcept {
  const auto features = what.features == feature_kind::sparse ? 0 : what.feature_width();
  return most * (features + what.label_elements()) * sizeof(float);
}

} // namespace troupe
