#pragma once

#include "kernels/cpu/executor.hpp"

#include <cstddef>

namespace troupe::cpu {

// Formulas: kernels/graph/sparse_operations.hpp. T: float, double.

/// out (rows, units) = x (rows, features) times weight (features, units). A row of out is NaN if x
/// has a column outside 0 .. features - 1 in this row.
template <class T>
void sparse_matmul(std::size_t rows, std::size_t features, std::size_t units,
                   const sparse_rows<T>& x, const T* weight, T* out);

/// out (features, units) = x^T g, with g (rows, units). First sets all of `out` to 0. Then adds to
/// the rows of the features that occur in x.
template <class T>
void sparse_matmul_gradient(std::size_t rows, std::size_t features, std::size_t units,
                            const sparse_rows<T>& x, const T* g, T* out);

} // namespace troupe::cpu
