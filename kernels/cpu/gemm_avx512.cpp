// On x86-64, CMake compiles this file for AVX-512.

#include "kernels/cpu/gemm_avx512.hpp"

#include "kernels/cpu/gemm_tiles.hpp"

namespace troupe::cpu {

#ifdef __AVX512F__

namespace {

using wide = tiles<float, 64>;

} // namespace

bool has_wide_vectors() noexcept {
  static const bool result = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")
    && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  return result;
}

std::size_t wide_scratch_elements() noexcept {
  return wide::scratch_elements;
}

void wide_product(std::size_t m, std::size_t n, std::size_t k, matrix<float> a, matrix<float> b,
                  float* c, std::size_t row_stride, bool accumulate, float* scratch) {
  wide::product(m, n, k, a, b, c, row_stride, accumulate, scratch);
}

void wide_pack(std::size_t k, std::size_t n, matrix<float> b, float* panels) {
  wide::pack(k, n, b, panels);
}

void wide_product_packed(std::size_t m, std::size_t n, std::size_t k, matrix<float> a,
                         const float* panels, float* c, std::size_t row_stride, bool accumulate) {
  wide::product_packed(m, n, k, a, panels, c, row_stride, accumulate);
}

void wide_product_at(std::size_t m, std::size_t n, std::size_t k, const float* a, const float* b,
                     const std::size_t* offsets, float* c, std::size_t row_stride) {
  wide::product_at(m, n, k, a, b, offsets, c, row_stride);
}

void wide_product_lines(std::size_t m, std::size_t n, std::size_t height, std::size_t width,
                        const float* a, const std::size_t* offsets, std::size_t line,
                        const float* panels, float* c, std::size_t row_stride) {
  wide::product_lines(m, n, height, width, a, offsets, line, panels, c, row_stride);
}

#else

bool has_wide_vectors() noexcept {
  return false;
}
std::size_t wide_scratch_elements() noexcept {
  return 0;
}
void wide_product(std::size_t, std::size_t, std::size_t, matrix<float>, matrix<float>, float*,
                  std::size_t, bool, float*) {}
void wide_pack(std::size_t, std::size_t, matrix<float>, float*) {}
void wide_product_packed(std::size_t, std::size_t, std::size_t, matrix<float>, const float*, float*,
                         std::size_t, bool) {}
void wide_product_at(std::size_t, std::size_t, std::size_t, const float*, const float*,
                     const std::size_t*, float*, std::size_t) {}
void wide_product_lines(std::size_t, std::size_t, std::size_t, std::size_t, const float*,
                        const std::size_t*, std::size_t, const float*, float*, std::size_t) {}

#endif

} // namespace troupe::cpu
