#pragma once

#include "kernels/cpu/sequences.hpp"
#include "kernels/cuda/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::cuda {

// Copies of elements to other places; formulas: kernels/graph/sequence_operations.hpp.

/// out, of `extents`, from x (size elements): element (i_0, i_1, ...) of out lies at
/// sum i_k strides[k] of x. From one to cpu::most_axes axes.
void gather_strided(stream where, std::span<const std::size_t> extents,
                    std::span<const std::size_t> strides, std::size_t size, const float* x,
                    float* out);

/// Rows of `size` elements, apart by strides.
struct row_copy {
  std::size_t rows = 0;
  std::size_t size = 0;
  const float* from = nullptr;
  std::size_t from_stride = 0;
  float* to = nullptr;
  std::size_t to_stride = 0;
};
void copy_rows(stream where, const row_copy& what);

/// out (n, columns) = the rows of the table (entries, columns) that `ids` (n) name; NaN for ids
/// that are none.
void embedding(stream where, std::size_t n, std::size_t entries, std::size_t columns,
               const std::int32_t* ids, const float* table, float* out);
/// out (entries, columns): each row is the sum of the rows of dy (n, columns) whose id names it, in
/// their order; else 0. `space`: n elements. Compares the ids with each other: n^2 / 2 steps,
/// shared by all threads.
void embedding_gradient(stream where, std::size_t n, std::size_t entries, std::size_t columns,
                        const std::int32_t* ids, const float* dy, std::int32_t* space, float* out);

} // namespace troupe::cuda
