#pragma once

#include "kernels/graph.hpp"
#include "kernels/instruction.hpp"

#include <cstddef>

namespace troupe::cpu {

// Element-wise operations and reductions on contiguous memory. `out` may be one of the operands.
// Formulas: see kernels/operations.hpp. T: float, double.

/// scale, relu, tanh, sigmoid: out[i] = f(x[i]). `factor` counts for scale.
template <class T>
void unary(operation op, std::size_t n, const T* x, T factor, T* out);

/// add, subtract, multiply and the gradients of activations: out[i] = f(a[i], b[i]).
template <class T>
void binary(operation op, std::size_t n, const T* a, const T* b, T* out);

/// out (rows, columns) = x (rows, columns) + b (columns), b nullptr for none, and then `after` with
/// its operand (rows, columns).
template <class T>
void add_bias(std::size_t rows, std::size_t columns, const T* x, const T* b, epilogue after,
              const T* operand, T* out);

/// Sum of all elements, added up in double.
template <class T>
double sum(std::size_t n, const T* x);

/// out (columns) = sum over rows of x (rows, columns), in the order of the rows.
template <class T>
void sum_leading(std::size_t rows, std::size_t columns, const T* x, T* out);

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
