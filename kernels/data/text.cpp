#include "kernels/data/text.hpp"

#include "kernels/error.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

text_dataset::text_dataset(std::vector<std::int32_t> tokens, std::size_t vocabulary,
                           std::size_t window, std::size_t stride)
  : tokens_(std::move(tokens)), window_(window), stride_(stride) {
  record_.features = feature_kind::tokens;
  record_.dims = {static_cast<std::int64_t>(window)};
  record_.vocabulary = vocabulary;
  record_.labels = label_kind::classes;
  record_.label_width = vocabulary;
  record_.labels_per_record = window;
  count_records(tokens_.size());
}

text_dataset::text_dataset(std::shared_ptr<const text_dataset> whole, std::uint64_t begin,
                           std::uint64_t end)
  : whole_(whole->whole_ ? whole->whole_ : whole), begin_(begin), window_(whole->window_),
    stride_(whole->stride_), record_(whole->record_) {
  if (begin > end || end > this->tokens().size())
    throw input_error("text: characters " + std::to_string(begin) + " to " + std::to_string(end)
                      + " do not lie within its " + std::to_string(this->tokens().size()));
  count_records(end);
}

void text_dataset::count_records(std::uint64_t end) {
  const auto characters = end - begin_;
  if (characters <= window_)
    throw input_error("text: " + std::to_string(characters)
                      + " characters are too few for a window of " + std::to_string(window_)
                      + " and the character after it");
  size_ = (characters - window_ - 1) / stride_ + 1;
}

void text_dataset::read(std::span<const std::uint64_t> records, feature_batch features,
                        label_batch labels) const {
  const auto* const first = tokens().data() + begin_;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto* const from = first + records[i] * stride_;
    std::copy_n(from, window_, features.tokens.data() + i * window_);
  }
  read_labels(records, labels);
}

bool text_dataset::read_labels(std::span<const std::uint64_t> records, label_batch labels) const {
  const auto* const first = tokens().data() + begin_;
  for (std::size_t i = 0; i < records.size(); ++i)
    std::copy_n(first + records[i] * stride_ + 1, window_, labels.classes.data() + i * window_);
  return true;
}

} // namespace troupe
