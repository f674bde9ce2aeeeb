#pragma once

#include "kernels/graph/graph.hpp"
#include "kernels/range.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::cpu {

// Formulas: kernels/graph/sequence_operations.hpp. T: float, double.

inline constexpr std::size_t most_axes = 8;

/// Gathers `out`, which has `extents`, from x: element (i_0, i_1, ...) of out is at sum i_k
/// strides[k] of x. The number of axes is 1 to most_axes.
template <class T>
void gather_strided(std::span<const std::size_t> extents, std::span<const std::size_t> strides,
                    const T* x, T* out);

/// Copies rows of `size` elements, which are from_stride and to_stride apart.
template <class T>
void copy_rows(std::size_t rows, std::size_t size, const T* from, std::size_t from_stride, T* to,
               std::size_t to_stride);

/// How a row (from, inner) becomes a row (to, inner): element (i, j) is the sum of weight *
/// x(position, j) over the terms of entry i of a table (to, taps, 2) of positions and weights. A
/// position below 0 ends the entry.
struct blend_sizes {
  std::size_t from = 0;
  std::size_t to = 0;
  std::size_t taps = 0;
  std::size_t inner = 0;
};
template <class T>
void blend(std::size_t rows, const blend_sizes& size, const T* x, const T* table, T* out);

/// out (ids, columns) = rows of a table (entries, columns), or NaN for an ID outside the table.
/// `table` holds only the rows `rows`; IDs of other rows are skipped.
template <class T>
void embedding(std::span<const std::int32_t> ids, std::size_t entries, range rows,
               std::size_t columns, const T* table, T* out);
/// Columns `part` of out (entries, columns) = sums of rows of dy (ids, columns).
template <class T>
void embedding_gradient(std::span<const std::int32_t> ids, std::size_t entries, std::size_t columns,
                        range part, const T* dy, T* out);

// In the next four functions, `out` may be an operand of the same size.

template <class T>
void multiply_rows(std::size_t rows, std::size_t columns, const T* x, const T* g, T* out);
template <class T>
void normalize_rows(std::size_t rows, std::size_t columns, const T* x, double epsilon, T* out);
template <class T>
void normalize_rows_gradient(std::size_t rows, std::size_t columns, const T* dy, const T* x,
                             double epsilon, T* out);
/// `count` matrices (size, size).
template <class T>
void causal_softmax(std::size_t count, std::size_t size, const T* x, T* out);

/// Sizes of a recurrence.
struct recurrence {
  troupe::cell cell = troupe::cell::rnn;
  std::size_t batch = 0;
  std::size_t time = 0;
  std::size_t hidden = 0;

  /// Gates per unit; stored values per unit and step; results of recurrent_gradient per unit and
  /// step.
  std::size_t gates() const noexcept;
  std::size_t stored() const noexcept;
  std::size_t parts() const noexcept;
};

template <class T>
std::size_t recurrent_scratch_elements(const recurrence& size);

/// states (batch, time, stored * hidden) from z (batch, time, gates * hidden), w (gates * hidden,
/// hidden), b (gates * hidden; gru only). `scratch`: recurrent_scratch_elements, aligned to 64
/// bytes.
template <class T>
void recurrent(const recurrence& size, const T* z, const T* w, const T* b, T* states, T* scratch);

/// out (batch, time, parts * hidden) from dh (batch, time, hidden).
template <class T>
void recurrent_gradient(const recurrence& size, const T* dh, const T* states, const T* w, T* out,
                        T* scratch);

} // namespace troupe::cpu
