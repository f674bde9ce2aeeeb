#pragma once

#include "kernels/cpu/sequences.hpp"
#include "kernels/cuda/mixed.hpp"
#include "kernels/cuda/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::cuda {

// Copies elements to other positions; for formulas, see kernels/graph/sequence_operations.hpp.

/// Computes `out`, which has the extents `extents`, from x, which has `size` elements. Element
/// (i_0, i_1, ...) of out is the element of x at position sum i_k strides[k]. There are 1 to
/// cpu::most_axes axes.
void gather_strided(stream where, std::span<const std::size_t> extents,
                    std::span<const std::size_t> strides, std::size_t size, mixed_input x,
                    mixed_output out);

/// Copies rows of `size` elements. Neighbouring rows begin from_stride elements apart in the
/// source, and to_stride elements apart in the destination.
struct row_copy {
  std::size_t rows = 0;
  std::size_t size = 0;
  mixed_input from;
  std::size_t from_stride = 0;
  mixed_output to;
  std::size_t to_stride = 0;
};
void copy_rows(stream where, const row_copy& what);

/// Copies a matrix of 16-bit elements to a matrix of another size, without converting them.
/// Elements of `to` that `from` does not have become 0.
struct matrix_resize {
  const void* from = nullptr; // (from_rows, from_columns)
  std::size_t from_rows = 0;
  std::size_t from_columns = 0;
  void* to = nullptr; // (to_rows, to_columns)
  std::size_t to_rows = 0;
  std::size_t to_columns = 0;
};
void resize_matrix(stream where, const matrix_resize& what);

/// out (rows, n, inner) has the n slices of each row of x in reverse order. `out` must not be x.
void reverse(stream where, std::size_t rows, std::size_t n, std::size_t inner, mixed_input x,
             mixed_output out);

/// Computes out (rows, to, inner) from x (rows, from, inner) and a table (to, taps, 2), like
/// cpu::blend.
void blend(stream where, std::size_t rows, const cpu::blend_sizes& size, const float* x,
           const float* table, float* out);

/// Row i of out (n, columns) is row ids[i] of the table (entries, columns), or NaN if the id is
/// invalid.
void embedding(stream where, std::size_t n, std::size_t entries, std::size_t columns,
               const std::int32_t* ids, const float* table, float* out);
/// Work space of embedding_gradient, in elements of 64 bits.
std::size_t embedding_gradient_space(std::size_t n) noexcept;
/// Row i of out (entries, columns) is the sum of all rows of dy (n, columns) whose id is i, added
/// up in their order. If no row of dy has id i, row i of out is 0. The positions of dy are sorted
/// by id: blocks of threads sort runs of 256 positions, and about log2(n / 256) launches merge
/// these runs. n must be less than size_limit (size_limits.hpp).
/// @param rows_only true to leave the rows of `out` whose id does not occur unchanged
void embedding_gradient(stream where, std::size_t n, std::size_t entries, std::size_t columns,
                        const std::int32_t* ids, const float* dy, std::uint64_t* space, float* out,
                        bool rows_only = false);

} // namespace troupe::cuda
