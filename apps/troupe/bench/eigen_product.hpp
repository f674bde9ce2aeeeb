#pragma once

#include "kernels/cpu/gemm.hpp"

namespace troupe::cpu {

/// The same matrix product as in gemm.hpp, but computed by Eigen on one thread, for comparison in
/// benchmarks. May allocate memory.
void eigen_product(std::size_t m, std::size_t n, std::size_t k, matrix<float> a, matrix<float> b,
                   float* c);

} // namespace troupe::cpu
