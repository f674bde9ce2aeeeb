#pragma once

#include "kernels/cpu/gemm.hpp"

#include <cstddef>

namespace troupe::cpu {

/// c = a b, or c += a b, computed by cblas_sgemm on the calling thread. Sizes and strides are those
/// of gemm(). cblas cannot express a product if rows overlap, or if a size is larger than its
/// integer type. Then the function returns false and writes nothing. Only in builds with
/// TROUPE_BLAS=openblas.
bool openblas_product(std::size_t m, std::size_t n, std::size_t k, matrix<float> a, matrix<float> b,
                      float* c, std::size_t row_stride, bool accumulate);

} // namespace troupe::cpu
