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

  /// Always inline, so that no copy of it is compiled for newer processors and then used on all.
  [[gnu::always_inline]] matrix transposed() const noexcept {
    return {data, column_stride, row_stride};
  }
};

// Products of matrices on one thread, by register tiles over packed panels (Goto and van de Geijn,
// 2008), with AVX-512 if the processor has it, else with AVX2.
//
// Each element of c is one chain of fused multiply-adds over k, in order, from 0 (or from the
// previous element). Its bits depend only on its row of a and its column of b. They are the same
// for vectors of any width, for any number of rows and columns, and however a product is divided
// among calls or threads. Exception: if a or b is one vector, and both are contiguous along k, the
// element is the sum of 32 such chains. (In builds for machines without fused multiply-adds each
// step rounds twice. With TROUPE_BLAS=openblas, gemm<float>() calls OpenBLAS: its bits depend on
// the processor and on how a product is divided.)
//
// Nothing is allocated. `scratch` has gemm_scratch_elements<T>() elements, aligned to 64 bytes.

template <class T>
std::size_t gemm_scratch_elements() noexcept;

/// c (m, n) = a (m, k) b (k, n), or c += a b. c is row-major with `row_stride` elements from row to
/// row, and apart from a and b. All zero where k == 0.
template <class T>
void gemm(std::size_t m, std::size_t n, std::size_t k, matrix<T> a, matrix<T> b, T* c,
          std::size_t row_stride, T* scratch, bool accumulate = false);

/// For a b that is used in several products: `pack` it once, to packed_elements. a is row-major.
template <class T>
std::size_t packed_elements(std::size_t k, std::size_t n) noexcept;
template <class T>
void pack(std::size_t k, std::size_t n, matrix<T> b, T* panels);
template <class T>
void gemm_packed(std::size_t m, std::size_t n, std::size_t k, matrix<T> a, const T* panels, T* c,
                 std::size_t row_stride, T* scratch, bool accumulate = false);

// For convolutions: matrices whose rows overlap in an image.

/// Columns come in multiples of this.
inline constexpr std::size_t gemm_columns = 32;

/// c (m, n) = a (m, k) b (k, n): a row-major without gaps, row p of b at b + offsets[p]; n a
/// multiple of gemm_columns.
template <class T>
void gemm_at(std::size_t m, std::size_t n, std::size_t k, const T* a, const T* b,
             const std::size_t* offsets, T* c, std::size_t row_stride);

/// c (m, n) += a (m, height * width) times a packed b. Row i of a lies at a + offsets[i], in
/// `height` lines of `width` elements, `line` apart. c has rows of a multiple of gemm_columns.
template <class T>
void gemm_lines(std::size_t m, std::size_t n, std::size_t height, std::size_t width, const T* a,
                const std::size_t* offsets, std::size_t line, const T* panels, T* c,
                std::size_t row_stride);

} // namespace troupe::cpu
