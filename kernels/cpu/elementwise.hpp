#pragma once

#include "kernels/graph/graph.hpp"
#include "kernels/plan/instruction.hpp"

#include <cstddef>
#include <optional>
#include <span>

namespace troupe::cpu {

// Element-wise operations and reductions on contiguous memory. `out` may be one of the operands.
// Formulas: kernels/graph/operations.hpp. T: float, double.

/// Computes out[i] = f(a[i], b[i], c[i]) for n elements. factor: node::factor. If the operation has
/// fewer than three operands, the pointers to the others are not used.
template <class T>
using element_loop = void(std::size_t n, const T* a, const T* b, const T* c, T factor, T* out);

/// The loop of an operation. Null if the operation is not element-wise.
template <class T>
element_loop<T>* loop_of(operation op) noexcept;

/// True if add_bias and add_row_bias can apply the operation to their result.
bool is_epilogue(operation op) noexcept;

/// Number of elements that `elementwise` computes at a time.
inline constexpr std::size_t elementwise_block = 1024;

/// Runs the program of an `elementwise` instruction over n elements. It works block by block, so
/// that intermediate results stay in the cache. The first `inputs` entries of `registers` point to
/// the inputs, which have n elements each. The function sets the other entries to places in
/// `temporaries`, which has elementwise_block elements per temporary.
template <class T>
void elementwise(std::span<const element_step> program, std::size_t n,
                 std::span<const T*> registers, std::size_t inputs, T* temporaries, T* out);

/// out (rows, columns) = x (rows, columns) + b (columns), followed by the operation `after`, whose
/// operand is `operand` (rows, columns). b may be null. If b is null and `after` is empty, the
/// function does nothing, and does not even copy x to `out`.
template <class T>
void add_bias(std::size_t rows, std::size_t columns, const T* x, const T* b,
              std::optional<operation> after, const T* operand, T* out);

/// Like add_bias, but b has one element per row: b[r] is added to row r.
template <class T>
void add_row_bias(std::size_t rows, std::size_t columns, const T* x, const T* b,
                  std::optional<operation> after, const T* operand, T* out);

/// The sum of all elements, computed in double.
template <class T>
double sum(std::size_t n, const T* x);

/// out (columns) = the sum over the rows of x (rows, columns), added in order. Rows of x begin
/// `stride` elements apart.
template <class T>
void sum_leading(std::size_t rows, std::size_t columns, std::size_t stride, const T* x, T* out);

/// out (rows) = the sum of each row of x (rows, columns), computed in double.
template <class T>
void sum_last(std::size_t rows, std::size_t columns, const T* x, T* out);

/// out (rows, columns): each row is x (columns).
template <class T>
void broadcast_leading(std::size_t rows, std::size_t columns, const T* x, T* out);

/// out (rows, columns): row r is x[r], repeated.
template <class T>
void broadcast_last(std::size_t rows, std::size_t columns, const T* x, T* out);

} // namespace troupe::cpu
