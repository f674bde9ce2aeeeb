#pragma once

#include <cstddef>

namespace troupe::cpu {

/// A matrix in memory: element (i, j) is data[i * row_stride + j * column_stride]. One of the
/// strides is 1.
template <class T>
struct matrix {
  const T* data = nullptr;
  std::size_t row_stride = 0;
  std::size_t column_stride = 1;

  matrix transposed() const noexcept { return {data, column_stride, row_stride}; }
};

/// Elements of scratch space that a product of matrices of any size may need.
template <class T>
std::size_t gemm_scratch_elements() noexcept;

/// c (m, n) = a (m, k) b (k, n). c is row-major with `row_stride` elements from row to row, and
/// apart from a and b. All zero where k == 0. `scratch`: gemm_scratch_elements<T>() elements,
/// aligned to 64 bytes.
///
/// Eigen's blocked product, on one thread, and its matrix-vector product for one row or one column.
/// Eigen packs into `scratch`, in blocks of bounded size: nothing is allocated for matrices of any
/// size, on the heap or on the stack. The sizes of blocks do not depend on the machine's caches, so
/// the bits of c depend on m, n, k and the operands alone. A row of c may differ in rounding
/// between batches of one row and of several.
template <class T>
void gemm(std::size_t m, std::size_t n, std::size_t k, matrix<T> a, matrix<T> b, T* c,
          std::size_t row_stride, T* scratch);

extern template std::size_t gemm_scratch_elements<float>() noexcept;
extern template std::size_t gemm_scratch_elements<double>() noexcept;
extern template void gemm(std::size_t, std::size_t, std::size_t, matrix<float>, matrix<float>,
                          float*, std::size_t, float*);
extern template void gemm(std::size_t, std::size_t, std::size_t, matrix<double>, matrix<double>,
                          double*, std::size_t, double*);

} // namespace troupe::cpu
