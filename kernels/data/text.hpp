#pragma once

#include "kernels/data/dataset.hpp"

#include <memory>
#include <vector>

namespace troupe {

/// A text as records for predicting the next character. A record is a window of characters
/// (tokens). The label at each position is the character after it.
///
/// Record i begins at character begin + i * stride. Its tokens are the `window` characters from
/// there on. Its labels are the `window` characters that begin one character later. If the stride
/// is `window`, each character is a label once. With a stride of 1, there is a record at each
/// position where a window fits. No record, including its labels, extends beyond `end`. Therefore,
/// parts of a text that do not overlap have no character in common.
class text_dataset final : public dataset {
public:
  /// Makes records of a whole text.
  /// @param tokens each from 0 to vocabulary - 1.
  /// @param window, stride at least 1.
  /// @throws input_error if the text is too short for one window and the character after it.
  text_dataset(std::vector<std::int32_t> tokens, std::size_t vocabulary, std::size_t window,
               std::size_t stride);

  /// Makes records of the characters begin .. end - 1 of the text of another data set. Shares its
  /// memory.
  /// @throws input_error if this range is not within the text, or is too short for one window and
  /// the character after it.
  text_dataset(std::shared_ptr<const text_dataset> whole, std::uint64_t begin, std::uint64_t end);

  std::uint64_t size() const noexcept override { return size_; }
  const record_shape& record() const noexcept override { return record_; }
  std::size_t memory_bytes() const noexcept override {
    return tokens().size() * sizeof(std::int32_t);
  }
  const dataset& storage() const noexcept override { return whole_ ? *whole_ : *this; }
  void read(std::span<const std::uint64_t> records, feature_batch features,
            label_batch labels) const override;
  bool read_labels(std::span<const std::uint64_t> records, label_batch labels) const override;

  /// The whole text.
  const std::vector<std::int32_t>& tokens() const noexcept {
    return whole_ ? whole_->tokens_ : tokens_;
  }

private:
  void count_records(std::uint64_t end);

  std::shared_ptr<const text_dataset> whole_; // if null, this object holds the text
  std::vector<std::int32_t> tokens_;
  std::uint64_t begin_ = 0;
  std::size_t window_;
  std::size_t stride_;
  std::uint64_t size_ = 0;
  record_shape record_;
};

} // namespace troupe
