#pragma once

#include "kernels/cuda/stream.hpp"
#include "kernels/graph/dtype.hpp"

#include <cstddef>
#include <span>

namespace troupe::cuda {

/// n elements at `from`, written to `to` in another type; or in the same one.
struct converted {
  const void* from = nullptr;
  dtype from_type = dtype::float32;
  void* to = nullptr;
  dtype to_type = dtype::float32;
  std::size_t n = 0;
};

/// Converts all of them, with one launch for each most_conversions. None may overlap another one.
/// Types: float32, bfloat16, float16. The bits are those of kernels/narrow_float.hpp.
inline constexpr std::size_t most_conversions = 64;
void convert(stream where, std::span<const converted> all);

} // namespace troupe::cuda
