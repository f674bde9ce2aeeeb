#pragma once

#include "kernels/cpu/gemm.hpp"

namespace troupe::cpu {

// The matrix products of gemm.hpp for floats, computed with vector registers of 64 bytes. Internal
// to gemm.cpp. Call the products only if has_wide_vectors() is true.

bool has_wide_vectors() noexcept;
std::size_t wide_scratch_elements() noexcept;
void wide_product(std::size_t m, std::size_t n, std::size_t k, matrix<float> a, matrix<float> b,
                  float* c, std::size_t row_stride, bool accumulate, float* scratch);
void wide_pack(std::size_t k, std::size_t n, matrix<float> b, float* panels);
void wide_product_packed(std::size_t m, std::size_t n, std::size_t k, matrix<float> a,
                         const float* panels, float* c, std::size_t row_stride, bool accumulate);
void wide_product_at(std::size_t m, std::size_t n, std::size_t k, const float* a, const float* b,
                     const std::size_t* offsets, float* c, std::size_t row_stride);
void wide_product_lines(std::size_t m, std::size_t n, std::size_t height, std::size_t width,
                        const float* a, const std::size_t* offsets, std::size_t line,
                        const float* panels, float* c, std::size_t row_stride);

} // namespace troupe::cpu
