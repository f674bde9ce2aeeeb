#pragma once

#include "kernels/cuda/device.hpp"

#include <cstdint>

namespace troupe::cuda {

/// The alignment of a bias that cublasLt needs, in bytes.
inline constexpr std::size_t bias_alignment = 16;

/// True if cublasLt has this kind of epilogue: a bias, ReLU, or both, on a single product whose
/// bias is aligned. (Its GELU is the approximation by tanh. Ours is exact, so it is not fused.) For
/// some sizes and addresses, cublasLt still has no algorithm.
inline bool has_epilogue(const product& x) noexcept {
  const bool aligned = reinterpret_cast<std::uintptr_t>(x.bias) % bias_alignment == 0;
  const bool ends = x.after == operation::end || x.after == operation::relu;
  const bool any = x.bias != nullptr || x.after != operation::end;
  return any && ends && aligned && x.batch == 1 && x.m > 0 && x.n > 0 && x.k > 0;
}

} // namespace troupe::cuda
