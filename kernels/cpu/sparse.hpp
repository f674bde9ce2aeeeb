#pragma once

#include "kernels/cpu/executor.hpp"

#include <cstddef>
#include <span>

namespace troupe::cpu {

// Formulas: kernels/graph/sparse_operations.hpp. T: float, double.

/// out (rows, units) = x (rows, features) times weight (features, units). If a row of x has a
/// column outside 0 .. features - 1, the same row of out is NaN.
/// @param weight pieces of memory, which together have all rows of the weight, in ascending order
template <class T>
void sparse_matmul(std::size_t rows, std::size_t features, std::size_t units,
                   const sparse_rows<T>& x, std::span<const weight_rows<T>> weight, T* out);

/// out (features, units) = x^T g, with g (rows, units). Rows of `out` for features that do not
/// occur in x are 0.
/// @param cleared true if `out` is 0 before the call; such rows are then not written
template <class T>
void sparse_matmul_gradient(std::size_t rows, std::size_t features, std::size_t units,
                            const sparse_rows<T>& x, const T* g, T* out, bool cleared = false);

} // namespace troupe::cpu
