#pragma once

#include "kernels/cpu/executor.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/sparse.hpp"
#include "kernels/cuda/staged_buffer.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::cuda {

/// A sparse matrix (rows, features) in device memory. The number of entries is known only when a
/// run begins. If a run needs more memory for entries (device memory, and pinned memory for the
/// copies), this memory grows: to 1.5 times as much as the run needs, and at least to twice as much
/// as before.
class sparse_feed {
public:
  /// @param by_column true if the entries are also needed column by column
  sparse_feed(device& where, std::size_t max_rows, std::size_t features, bool by_column);

  /// Bytes of device memory that a sparse_feed allocates, without the memory for entries.
  static std::size_t memory_bytes(std::size_t max_rows) noexcept {
    return (max_rows + 1) * sizeof(std::int32_t);
  }
  /// Bytes of device memory for entries, if the first batch has this number of entries, and no
  /// later batch has much more. The entries take as many bytes of pinned memory.
  static std::size_t entry_bytes(std::size_t entries, bool by_column) noexcept;

  /// Copies the rows to the device. No earlier copy may be running. Returns true if the entries are
  /// now in other memory than before. Recordings (CUDA graphs) that contain the old addresses are
  /// then useless. Throws device_error if there is too little memory.
  bool copy(stream where, const sparse_rows<float>& x, std::size_t rows);

  sparse_entries entries() const noexcept;
  entries_by_column columns() const noexcept;

private:
  bool grow(std::size_t entries);
  void copy_columns(stream where, const sparse_rows<float>& x, std::size_t rows);
  void sort(const sparse_rows<float>& x, std::size_t rows);
  std::size_t write_groups() const;

  device* gpu_;
  std::size_t features_;
  bool by_column_;
  std::size_t capacity_ = 0;
  staged_buffer<std::int32_t> starts_;
  staged_buffer<std::int32_t> columns_;
  staged_buffer<float> values_;
  staged_buffer<std::int32_t> groups_; // count, columns, starts, rows
  staged_buffer<float> group_values_;

  /// An entry of the matrix, on the host.
  struct entry {
    std::int32_t column, row;
    float value;
  };
  /// The entries in the order of their columns, and memory for sorting them. Both vectors keep
  /// their memory from one batch to the next.
  std::vector<entry> sorted_;
  std::vector<entry> spare_;
};

} // namespace troupe::cuda
