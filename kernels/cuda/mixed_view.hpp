#pragma once

#include "kernels/cuda/kernel.hpp"
#include "kernels/graph/dtype.hpp"
#include "kernels/narrow_float.hpp"

#include <cstddef>

// Views of floating-point numbers whose type is known only at run time. All threads take the same
// branch.

namespace troupe::cuda {

/// float32, bfloat16 or float16 in device memory.
struct mixed_view {
  const void* data = nullptr;
  std::size_t size = 0;
  dtype type = dtype::float32;

  TROUPE_DEVICE float load(std::size_t i) const {
    if (type == dtype::bfloat16)
      return widened(view<const bfloat16>{static_cast<const bfloat16*>(data), size}.load(i));
    if (type == dtype::float16)
      return widened(view<const float16>{static_cast<const float16*>(data), size}.load(i));
    return view<const float>{static_cast<const float*>(data), size}.load(i);
  }
};

/// The same for writing; rounds.
struct mixed_target {
  void* data = nullptr;
  std::size_t size = 0;
  dtype type = dtype::float32;

  TROUPE_DEVICE void store(std::size_t i, float x) const {
    if (type == dtype::bfloat16)
      view<bfloat16>{static_cast<bfloat16*>(data), size}.store(i, rounded_to<bfloat16>(x));
    else if (type == dtype::float16)
      view<float16>{static_cast<float16*>(data), size}.store(i, rounded_to<float16>(x));
    else
      view<float>{static_cast<float*>(data), size}.store(i, x);
  }
};

} // namespace troupe::cuda
