#include "kernels/cpu/gemm.hpp"

#include "kernels/cpu/gemm_avx512.hpp"
#include "kernels/cpu/gemm_tiles.hpp"
#ifdef TROUPE_OPENBLAS
#include "kernels/cpu/gemm_openblas.hpp"
#endif

#include <algorithm>
#include <type_traits>

namespace troupe::cpu {

namespace {

template <class T>
using narrow = tiles<T, 32>;

/// The sum of x[p] y[p]. It is computed as 32 independent sums, which are added at the end.
template <class T>
T dot(std::size_t n, const T* x, const T* y) {
  using lanes = narrow<T>;
  constexpr std::size_t chains = 32;
  constexpr auto vectors = chains / lanes::lanes;
  typename lanes::vector sums[vectors] = {};
  std::size_t p = 0;
  for (; p + chains <= n; p += chains)
    TROUPE_UNROLL(8)
  for (std::size_t v = 0; v < vectors; ++v)
    sums[v] += lanes::load(x + p + v * lanes::lanes) * lanes::load(y + p + v * lanes::lanes);
  T rest[chains];
  for (std::size_t v = 0; v < vectors; ++v)
    lanes::store(rest + v * lanes::lanes, sums[v]);
  for (std::size_t i = 0; p < n; ++i, ++p)
    rest[i] += x[p] * y[p];
  for (auto half = chains / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i)
      rest[i] += rest[i + half];
  return rest[0];
}

/// c = x v, or c += x v, where x is a matrix (m, k) and v is a vector (k). The elements of c (m)
/// are `stride` elements apart. v and each row of x are contiguous. The rows of x may begin more
/// than k elements apart.
template <class T>
void multiply_vector(std::size_t m, std::size_t k, matrix<T> x, const T* v, T* c,
                     std::size_t stride, bool accumulate) {
  for (std::size_t i = 0; i < m; ++i) {
    const T sum = dot(k, x.data + i * x.row_stride, v);
    c[i * stride] = accumulate ? c[i * stride] + sum : sum;
  }
}

} // namespace

template <class T>
std::size_t gemm_scratch_elements() noexcept {
  constexpr auto own = narrow<T>::scratch_elements;
  if constexpr (std::is_same_v<T, float>)
    return std::max(own, wide_scratch_elements());
  return own;
}

template <class T>
void gemm(std::size_t m, std::size_t n, std::size_t k, matrix<T> a, matrix<T> b, T* c,
          std::size_t row_stride, T* scratch, bool accumulate) {
  if (m == 0 || n == 0)
    return;
  if (k == 0) {
    for (std::size_t i = 0; i < m && !accumulate; ++i)
      std::fill_n(c + i * row_stride, n, T(0));
    return;
  }
  if (m == 1 && b.row_stride == 1 && a.column_stride == 1)
    return multiply_vector(n, k, b.transposed(), a.data, c, 1, accumulate);
  if (n == 1 && a.column_stride == 1 && b.row_stride == 1)
    return multiply_vector(m, k, a, b.data, c, row_stride, accumulate);
#ifdef TROUPE_OPENBLAS
  if constexpr (std::is_same_v<T, float>)
    if (openblas_product(m, n, k, a, b, c, row_stride, accumulate))
      return;
#endif
  if constexpr (std::is_same_v<T, float>)
    if (has_wide_vectors())
      return wide_product(m, n, k, a, b, c, row_stride, accumulate, scratch);
  narrow<T>::product(m, n, k, a, b, c, row_stride, accumulate, scratch);
}

template <class T>
std::size_t packed_elements(std::size_t k, std::size_t n) noexcept {
  return k * ((n + 15) / 16) * 16;
}

template <class T>
void pack(std::size_t k, std::size_t n, matrix<T> b, T* panels) {
  if constexpr (std::is_same_v<T, float>)
    if (has_wide_vectors())
      return wide_pack(k, n, b, panels);
  narrow<T>::pack(k, n, b, panels);
}

template <class T>
void gemm_packed(std::size_t m, std::size_t n, std::size_t k, matrix<T> a, const T* panels, T* c,
                 std::size_t row_stride, bool accumulate) {
  if constexpr (std::is_same_v<T, float>)
    if (has_wide_vectors())
      return wide_product_packed(m, n, k, a, panels, c, row_stride, accumulate);
  narrow<T>::product_packed(m, n, k, a, panels, c, row_stride, accumulate);
}

template <class T>
void gemm_at(std::size_t m, std::size_t n, std::size_t k, const T* a, const T* b,
             const std::size_t* offsets, T* c, std::size_t row_stride) {
  if constexpr (std::is_same_v<T, float>)
    if (has_wide_vectors())
      return wide_product_at(m, n, k, a, b, offsets, c, row_stride);
  narrow<T>::product_at(m, n, k, a, b, offsets, c, row_stride);
}

template <class T>
void gemm_lines(std::size_t m, std::size_t n, std::size_t height, std::size_t width, const T* a,
                const std::size_t* offsets, std::size_t line, const T* panels, T* c,
                std::size_t row_stride) {
  if constexpr (std::is_same_v<T, float>)
    if (has_wide_vectors())
      return wide_product_lines(m, n, height, width, a, offsets, line, panels, c, row_stride);
  narrow<T>::product_lines(m, n, height, width, a, offsets, line, panels, c, row_stride);
}

#define TROUPE_INSTANTIATE(T)                                                                      \
  template std::size_t gemm_scratch_elements<T>() noexcept;                                        \
  template void gemm(std::size_t, std::size_t, std::size_t, matrix<T>, matrix<T>, T*, std::size_t, \
                     T*, bool);                                                                    \
  template std::size_t packed_elements<T>(std::size_t, std::size_t) noexcept;                      \
  template void pack(std::size_t, std::size_t, matrix<T>, T*);                                     \
  template void gemm_packed(std::size_t, std::size_t, std::size_t, matrix<T>, const T*, T*,        \
                            std::size_t, bool);                                                    \
  template void gemm_at(std::size_t, std::size_t, std::size_t, const T*, const T*,                 \
                        const std::size_t*, T*, std::size_t);                                      \
  template void gemm_lines(std::size_t, std::size_t, std::size_t, std::size_t, const T*,           \
                           const std::size_t*, std::size_t, const T*, T*, std::size_t);

TROUPE_INSTANTIATE(float)
TROUPE_INSTANTIATE(double)
#undef TROUPE_INSTANTIATE

} // namespace troupe::cpu
