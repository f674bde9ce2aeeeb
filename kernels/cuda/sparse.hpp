#pragma once

#include "kernels/cuda/stream.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe::cuda {

// Products with a sparse matrix x (rows, features). Formulas: kernels/graph/sparse_operations.hpp.
// All pointers point to device memory. The arguments of a launch depend only on sizes, and not on
// the entries, so a CUDA graph can record the launch.

/// The entries of x, row by row. The entries of row r have the numbers starts[r] up to, but not
/// including, starts[r + 1].
struct sparse_entries {
  const std::int32_t* starts = nullptr;  ///< (rows + 1)
  const std::int32_t* columns = nullptr; ///< (capacity)
  const float* values = nullptr;         ///< (capacity)
  std::size_t capacity = 0;
};

/// The entries of x, grouped by column. Within a group, they are in the order of their rows. There
/// is a group for each column that has entries. Columns that are negative or too large have no
/// group.
struct entries_by_column {
  const std::int32_t* count = nullptr;   ///< (1): number of groups
  const std::int32_t* columns = nullptr; ///< (capacity): the column of each group, all different
  const std::int32_t* starts = nullptr;  ///< (capacity + 1): the first entry of each group
  const std::int32_t* rows = nullptr;    ///< (capacity): the row of each entry
  const float* values = nullptr;         ///< (capacity): the value of each entry
  std::size_t capacity = 0;
};

/// out (rows, units) = x weight, where weight is (features, units).
void sparse_matmul(stream where, std::size_t rows, std::size_t features, std::size_t units,
                   const sparse_entries& x, const float* weight, float* out);

/// out (features, units) = x^T g, where g is (rows, units).
/// @param rows_only true to leave the rows of `out` whose column has no entries unchanged
void sparse_matmul_gradient(stream where, std::size_t rows, std::size_t features, std::size_t units,
                            const entries_by_column& x, const float* g, float* out,
                            bool rows_only = false);

} // namespace troupe::cuda
