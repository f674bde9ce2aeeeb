#pragma once

#include "kernels/cpu/gemm.hpp"

#include <cstddef>

namespace troupe::cpu {

/// c = a b, or c += a b, by cblas_sgemm on the calling thread: sizes and strides as those of
/// gemm(). False, and nothing is written, where the interface cannot say it: rows that overlap, or
/// sizes beyond int. Only in builds with TROUPE_BLAS=openblas.
bool openblas_product(std::size_t m, std::size_t n, std::size_t k, matrix<float> a, matrix<float> b,
                      float* c, std::size_t row_stride, bool accumulate);

} // namespace troupe::cpu
