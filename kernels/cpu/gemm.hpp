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

  /// Always inline. Otherwise, the linker might use a copy that was compiled for newer processors.
  [[gnu::always_inline]] matrix transposed() const noexcept {
    return {data, column_stride, row_stride};
  }
};

// Matrix products on one thread, in register tiles over packed panels (Goto and van de Geijn,
// 2008). They use AVX-512 if the processor has it, otherwise AVX2.
//
// Each element of c is a single chain of fused multiply-adds over k, in order. The chain starts
// with 0, or with the old value of the element (c += a b). Its bits depend only on its row of a and
// its column of b. They do not depend on the width of vectors, on the number of rows and columns,
// or on the division of a product among calls or threads. Exception: if a or b is a vector, and
// both are contiguous along k, the element is the sum of 32 such chains. (In builds for machines
// without fused multiply-adds, each step rounds twice. With TROUPE_BLAS=openblas, gemm<float>()
// calls OpenBLAS: its bits depend on the processor and on how a product is divided.)
//
// Nothing is allocated, except OpenBLAS's own work space. `scratch` has gemm_scratch_elements<T>()
// elements, aligned to 64 bytes.

template <class T>
std::size_t gemm_scratch_elements() noexcept;

/// c (m, n) = a (m, k) b (k, n), or c += a b. c is row-major, with rows `row_stride` elements
/// apart, and does not overlap a or b. If k == 0, c becomes 0, or does not change (c += a b).
template <class T>
void gemm(std::size_t m, std::size_t n, std::size_t k, matrix<T> a, matrix<T> b, T* c,
          std::size_t row_stride, T* scratch, bool accumulate = false);

/// Packed panels have this many columns, or a part of it.
inline constexpr std::size_t gemm_columns = 32;

/// For a matrix b that is used in several products: `pack` it once, into packed_elements. a is
/// row-major. A product may use only the first n columns, if n is a multiple of gemm_columns.
template <class T>
std::size_t packed_elements(std::size_t k, std::size_t n) noexcept;
template <class T>
void pack(std::size_t k, std::size_t n, matrix<T> b, T* panels);
template <class T>
void gemm_packed(std::size_t m, std::size_t n, std::size_t k, matrix<T> a, const T* panels, T* c,
                 std::size_t row_stride, bool accumulate = false);

// For convolutions: matrices whose rows overlap in an image.

/// c (m, n) = a (m, k) b (k, n). a is row-major without gaps. Row p of b is at b + offsets[p]. n is
/// a multiple of gemm_columns.
template <class T>
void gemm_at(std::size_t m, std::size_t n, std::size_t k, const T* a, const T* b,
             const std::size_t* offsets, T* c, std::size_t row_stride);

/// c (m, n) += a (m, height * width) times a packed b. Row i of a is at a + offsets[i], in `height`
/// lines of `width` elements, `line` apart. The rows of c have a multiple of gemm_columns elements.
template <class T>
void gemm_lines(std::size_t m, std::size_t n, std::size_t height, std::size_t width, const T* a,
                const std::size_t* offsets, std::size_t line, const T* panels, T* c,
                std::size_t row_stride);

} // namespace troupe::cpu
