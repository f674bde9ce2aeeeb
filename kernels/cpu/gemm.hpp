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

  /// Always inlined. Otherwise, the linker might use a copy that was compiled for newer processors.
  [[gnu::always_inline]] matrix transposed() const noexcept {
    return {data, column_stride, row_stride};
  }
};

// Matrix products on one thread. The operands are copied to packed panels, and tiles of the result
// are computed in registers (Goto and van de Geijn, 2008). The products use AVX-512 if the
// processor has it, otherwise AVX2.
//
// Each element of c is computed by a single chain of fused multiply-adds over k, in order. The
// chain starts with 0, or with the old value of the element (c += a b). So the bits of an element
// depend only on its row of a and its column of b. They do not depend on the width of vectors, on
// the number of rows and columns, or on how a product is divided among calls or threads. There are
// these exceptions:
// - In gemm(), if a or b is a vector, and both are contiguous along k, the element is the sum of 32
//   chains.
// - In builds for machines without fused multiply-adds, each multiply-add rounds twice.
// - With TROUPE_BLAS=openblas, gemm<float>() calls OpenBLAS. Its bits depend on the processor and
//   on how a product is divided.
//
// Nothing is allocated, except OpenBLAS's own work space. `scratch` has gemm_scratch_elements<T>()
// elements, aligned to 64 bytes.

template <class T>
std::size_t gemm_scratch_elements() noexcept;

/// c (m, n) = a (m, k) b (k, n), or c += a b if `accumulate` is true. c is row-major; its rows
/// begin `row_stride` elements apart. c does not overlap a or b. If k == 0, the product is 0.
template <class T>
void gemm(std::size_t m, std::size_t n, std::size_t k, matrix<T> a, matrix<T> b, T* c,
          std::size_t row_stride, T* scratch, bool accumulate = false);

/// Largest number of columns of b in a packed panel. The actual number depends on the width of the
/// vectors, and is gemm_columns divided by a power of 2.
inline constexpr std::size_t gemm_columns = 32;

/// For a matrix b (k, n) that is used in several products: first call pack(), which writes
/// packed_elements() elements to `panels`. Then call gemm_packed() for each product. gemm_packed()
/// requires a row-major a. It can also use only the first columns of b: its n may be any multiple
/// of gemm_columns that is smaller than the n of pack().
template <class T>
std::size_t packed_elements(std::size_t k, std::size_t n) noexcept;
template <class T>
void pack(std::size_t k, std::size_t n, matrix<T> b, T* panels);
template <class T>
void gemm_packed(std::size_t m, std::size_t n, std::size_t k, matrix<T> a, const T* panels, T* c,
                 std::size_t row_stride, bool accumulate = false);

// For convolutions: products with matrices of patches that are not stored. The rows of these
// matrices are read from an image, in which they overlap.

/// c (m, n) = a (m, k) b (k, n). a is row-major without gaps. Row p of b begins at b + offsets[p].
/// n is a multiple of gemm_columns.
template <class T>
void gemm_at(std::size_t m, std::size_t n, std::size_t k, const T* a, const T* b,
             const std::size_t* offsets, T* c, std::size_t row_stride);

/// c (m, n) += a (m, height * width) b, where b is packed in `panels`. Row i of a begins at a +
/// offsets[i]. It consists of `height` lines of `width` elements, which begin `line` elements
/// apart. Each row of c must have room for n elements, rounded up to a multiple of gemm_columns.
template <class T>
void gemm_lines(std::size_t m, std::size_t n, std::size_t height, std::size_t width, const T* a,
                const std::size_t* offsets, std::size_t line, const T* panels, T* c,
                std::size_t row_stride);

} // namespace troupe::cpu
