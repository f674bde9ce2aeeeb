#pragma once

#include "kernels/cpu/sequences.hpp"
#include "kernels/cuda/mixed.hpp"
#include "kernels/cuda/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::cuda {

// Copies elements to other positions; for formulas, see kernels/graph/sequence_operations.hpp.

/// out, of `extents`, from x (size elements): element (i_0, i_1, ...) of out lies at
/// sum i_k strides[k] of x. From one to cpu::most_axes axes.
void gather_strided(stream where, std::span<const std::size_t> extents,
                    std::span<const std::size_t> strides, std::size_t size, mixed_input x,
                    mixed_output out);

/// Rows of `size` elements at a distance of strides.
struct row_copy {
  std::size_t rows = 0;
  std::size_t size = 0;
  mixed_input from;
  std::size_t from_stride = 0;
  mixed_output to;
  std::size_t to_stride = 0;
};
void copy_rows(stream where, const row_copy& what);

/// out (rows, n, inner): the n slices of each row of x in reverse order. `out` is not x.
void reverse(stream where, std::size_t rows, std::size_t n, std::size_t inner, mixed_input x,
             mixed_output out);

/// out (rows, to, inner) from x (rows, from, inner) and a table (to, taps, 2): cpu::blend.
void blend(stream where, std::size_t rows, const cpu::blend_sizes& size, const float* x,
           const float* table, float* out);

/// out (n, columns) = the rows of the table (entries, columns) with the numbers `ids` (n). NaN for
/// invalid ids.
void embedding(stream where, std::size_t n, std::size_t entries, std::size_t columns,
               const std::int32_t* ids, const float* table, float* out);
/// Work space of embedding_gradient, in elements of 64 bits.
std::size_t embedding_gradient_space(std::size_t n) noexcept;
/// out (entries, columns): each row is the sum of the rows of dy (n, columns) with its id, in their
/// order; 0 if there are none. It sorts the positions by id: blocks sort runs of them, which are
/// then merged in log2(n / 256) launches. n < 2^32.
void embedding_gradient(stream where, std::size_t n, std::size_t entries, std::size_t columns,
                        const std::int32_t* ids, const float* dy, std::uint64_t* space, float* out);

} // namespace troupe::cuda
