#pragma once

#include "kernels/cpu/gemm.hpp"

namespace troupe::cpu {

/// The product of gemm.hpp, by Eigen, on one thread: what benchmarks compare with. May allocate.
void eigen_product(std::size_t m, std::size_t n, std::size_t k, matrix<float> a, matrix<float> b,
                   float* c);

} // namespace troupe::cpu
