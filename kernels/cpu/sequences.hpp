#pragma once

#include "kernels/graph/graph.hpp"
#include "kernels/range.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::cpu {

// Formulas: kernels/graph/sequence_operations.hpp. T: float, double.

/// Largest number of axes of a tensor in gather_strided.
inline constexpr std::size_t most_axes = 8;

/// Writes the tensor `out` with the sizes `extents`. Its element (i_0, i_1, ...) is the element of
/// x at position i_0 strides[0] + i_1 strides[1] + ... The number of axes is 1 to most_axes.
template <class T>
void gather_strided(std::span<const std::size_t> extents, std::span<const std::size_t> strides,
                    const T* x, T* out);

/// Copies rows of `size` elements. Rows begin from_stride elements apart in `from`, and to_stride
/// elements apart in `to`.
template <class T>
void copy_rows(std::size_t rows, std::size_t size, const T* from, std::size_t from_stride, T* to,
               std::size_t to_stride);

/// The sizes for blend(). x has the shape (rows, from, inner), and the result has the shape (rows,
/// to, inner). `table` (to, taps, 2) has a list of up to `taps` pairs (position, weight) for each
/// i < to. In each row, element (i, j) of the result is the sum of weight * x(position, j) over the
/// pairs of list i. A negative position ends the list.
struct blend_sizes {
  std::size_t from = 0;
  std::size_t to = 0;
  std::size_t taps = 0;
  std::size_t inner = 0;
};
template <class T>
void blend(std::size_t rows, const blend_sizes& size, const T* x, const T* table, T* out);

/// Looks up rows: row i of out (ids, columns) is row ids[i] of a table (entries, columns), or NaN
/// if ids[i] is outside the table. `table` points to a piece of memory with only the rows `rows` of
/// the table. If row ids[i] is not in this piece, row i of out is not written.
template <class T>
void embedding(std::span<const std::int32_t> ids, std::size_t entries, range rows,
               std::size_t columns, const T* table, T* out);
/// Computes the columns `part` of out (entries, columns). Row e is the sum of the rows i of dy
/// (ids, columns) for which ids[i] = e.
/// @param cleared true if `out` is 0 before the call; rows without an id are then not written
template <class T>
void embedding_gradient(std::span<const std::int32_t> ids, std::size_t entries, std::size_t columns,
                        range part, const T* dy, T* out, bool cleared = false);

// In the functions from here to causal_softmax, `out` may be the same memory as an operand of the
// same size.

template <class T>
void multiply_rows(std::size_t rows, std::size_t columns, const T* x, const T* g, T* out);
template <class T>
void normalize_rows(std::size_t rows, std::size_t columns, const T* x, double epsilon, T* out);
template <class T>
void normalize_rows_gradient(std::size_t rows, std::size_t columns, const T* dy, const T* x,
                             double epsilon, T* out);
/// x and out: `count` matrices (size, size).
template <class T>
void causal_softmax(std::size_t count, std::size_t size, const T* x, T* out);

/// The sizes of a recurrent layer over all time steps.
struct recurrence {
  troupe::cell cell = troupe::cell::rnn;
  std::size_t batch = 0;
  std::size_t time = 0;
  std::size_t hidden = 0;

  /// How many vectors of `hidden` elements there are for each sample and time step. gates(): one
  /// per gate. stored(): those that the forward pass stores in `states`. parts(): those that
  /// recurrent_gradient computes.
  std::size_t gates() const noexcept;
  std::size_t stored() const noexcept;
  std::size_t parts() const noexcept;
};

template <class T>
std::size_t recurrent_scratch_elements(const recurrence& size);

/// Computes states (batch, time, stored * hidden) from z (batch, time, gates * hidden), w (gates *
/// hidden, hidden) and b (gates * hidden; only for gru). `scratch` has recurrent_scratch_elements()
/// elements, aligned to 64 bytes.
template <class T>
void recurrent(const recurrence& size, const T* z, const T* w, const T* b, T* states, T* scratch);

/// Computes out (batch, time, parts * hidden) from dh (batch, time, hidden), the `states` of
/// recurrent(), and w.
template <class T>
void recurrent_gradient(const recurrence& size, const T* dh, const T* states, const T* w, T* out,
                        T* scratch);

} // namespace troupe::cpu
