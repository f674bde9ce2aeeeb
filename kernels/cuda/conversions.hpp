#pragma once

#include "kernels/cuda/stream.hpp"
#include "kernels/graph/dtype.hpp"

#include <cstddef>
#include <span>

namespace troupe::cuda {

/// A conversion: n elements at `from` are read, and written to `to` in another type or in the same
/// type.
struct converted {
  const void* from = nullptr;
  dtype from_type = dtype::float32;
  void* to = nullptr;
  dtype to_type = dtype::float32;
  std::size_t n = 0;
};

/// Runs all conversions. A launch runs up to most_conversions conversions. Conversions must not
/// overlap in memory. Types: float32, bfloat16, float16. The results have the same bits as those of
/// kernels/narrow_float.hpp.
inline constexpr std::size_t most_conversions = 64;
void convert(stream where, std::span<const converted> all);

} // namespace troupe::cuda
