#pragma once

#include "kernels/graph/graph.hpp"
#include "kernels/plan/instruction.hpp"

#include <cstddef>
#include <optional>
#include <span>

namespace troupe::cpu {

// Element-wise operations and reductions on contiguous memory. `out` may be one of the operands.
// Formulas: see kernels/graph/operations.hpp. T: float, double.

/// out[i] = f(a[i], b[i], c[i]) with node::factor. Operands that the operation does not have are
/// not read.
template <class T>
using element_loop = void(std::size_t n, const T* a, const T* b, const T* c, T factor, T* out);

/// The loop of an operation; null if the operation is not element-wise.
template <class T>
element_loop<T>* loop_of(operation op) noexcept;

/// True if add_bias and add_row_bias can apply the operation to their result.
bool is_epilogue(operation op) noexcept;

/// Number of elements that `elementwise` handles at a time.
inline constexpr std::size_t elementwise_block = 1024;

/// Runs a program over n elements, block by block, so that intermediate results stay in the cache.
/// `registers` holds pointers to the inputs, n elements each, followed by room for the pointers to
/// `temporaries`, elementwise_block elements each.
template <class T>
void elementwise(std::span<const element_step> program, std::size_t n,
                 std::span<const T*> registers, std::size_t inputs, T* temporaries, T* out);

/// out (rows, columns) = x (rows, columns) + b (columns), followed by `after` with its operand
/// (rows, columns). b may be nullptr.
template <class T>
void add_bias(std::size_t rows, std::size_t columns, const T* x, const T* b,
              std::optional<operation> after, const T* operand, T* out);

/// The same with b (rows): b[r] is added to row r.
template <class T>
void add_row_bias(std::size_t rows, std::size_t columns, const T* x, const T* b,
                  std::optional<operation> after, const T* operand, T* out);

/// Sum of all elements, added up in double.
template <class T>
double sum(std::size_t n, const T* x);

/// out (columns) = sum over the rows of x (rows, columns), in order. Rows are `stride` elements
/// apart.
template <class T>
void sum_leading(std::size_t rows, std::size_t columns, std::size_t stride, const T* x, T* out);

/// out (rows) = sum of each row of x (rows, columns), added up in double.
template <class T>
void sum_last(std::size_t rows, std::size_t columns, const T* x, T* out);

/// out (rows, columns): each row is x (columns).
template <class T>
void broadcast_leading(std::size_t rows, std::size_t columns, const T* x, T* out);

/// out (rows, columns): row r is x[r], repeated.
template <class T>
void broadcast_last(std::size_t rows, std::size_t columns, const T* x, T* out);

} // namespace troupe::cpu
