#pragma once

#include "kernels/data/dataset.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// Memory into which records of a data set are read. Each read reuses the memory. Only one thread
/// at a time may use it.
class record_buffer {
public:
  /// @param what the shape of the records that will be read.
  /// @param most the largest number of records in a read; at least 1.
  record_buffer(const record_shape& what, std::size_t most);

  std::size_t most() const noexcept { return most_; }

  /// Reads these records in this order. They replace the records of the previous read. Throws the
  /// errors of `set.read`.
  /// @param records at most `most`, each below set.size()
  void read(const dataset& set, std::span<const std::uint64_t> records);

  /// Reads `count` records, starting with `first`. `count` is at most `most`.
  void read(const dataset& set, std::uint64_t first, std::size_t count);

  /// Features and labels of the last read. They are valid until the next read.
  const feature_batch& features() const noexcept { return features_; }
  const label_batch& labels() const noexcept { return labels_; }

  /// Size in bytes of a buffer with these arguments, before its first read. With sparse records, a
  /// read may enlarge the buffer.
  static std::size_t memory_bytes(const record_shape& what, std::size_t most) noexcept;

private:
  record_shape what_;
  std::size_t most_;
  std::vector<std::uint64_t> records_;
  std::vector<float> numbers_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> row_starts_;
  std::vector<std::int32_t> columns_;
  std::vector<std::int32_t> classes_;
  std::vector<float> targets_;
  feature_batch features_;
  label_batch labels_;
};

} // namespace troupe
