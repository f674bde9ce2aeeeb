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
/// Each element of c is one chain of fused multiply-adds in the order of k, whatever the sizes are:
/// the rows of a batch do not depend on how many there are.
///
/// Method (Goto and van de Geijn, 2008, without packing of the larger matrix): a tile of c, 6 rows
/// by two vectors, stays in registers. One operand is packed into panels as wide as the tile, the
/// other one is read where it is, a broadcast element at a time. For y = x W^T with a batch smaller
/// than W this packs x, not W, by computing the transpose.
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
