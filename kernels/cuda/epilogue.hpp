#pragma once

#include "kernels/cuda/device.hpp"

#include <cstdint>

namespace troupe::cuda {

/// The alignment of a bias that cublasLt needs, in bytes.
inline constexpr std::size_t bias_alignment = 16;

/// True if cublasLt has this kind of epilogue: an addend, a bias, ReLU, or several of these. False
/// for a batch of several products, and for a bias that is not aligned. (The GELU of cublasLt is
/// the approximation by tanh. Troupe's GELU is exact, so cublasLt cannot compute it.) For some
/// sizes and addresses, cublasLt has no algorithm although this function returns true.
inline bool has_epilogue(const product& x) noexcept {
  const bool aligned = reinterpret_cast<std::uintptr_t>(x.bias) % bias_alignment == 0;
  const bool known = x.after == operation::end || x.after == operation::relu;
  return x.ends() && known && aligned && x.batch == 1 && x.m > 0 && x.n > 0 && x.k > 0;
}

} // namespace troupe::cuda
