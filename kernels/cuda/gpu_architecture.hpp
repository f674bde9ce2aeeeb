#pragma once

#include <string>

namespace troupe::cuda {

/// The oldest architecture that this program supports, as 10 times its compute capability (80 for
/// 8.0). It is the oldest architecture for which the program has code (set by CMake), but at least
/// that of the A100, the first GPU with products of bfloat16 and TF32.
#ifdef TROUPE_OLDEST_GPU
inline constexpr int oldest_gpu = TROUPE_OLDEST_GPU > 80 ? TROUPE_OLDEST_GPU : 80;
#else
inline constexpr int oldest_gpu = 80;
#endif

/// Returns the reason why a GPU of compute capability major.minor cannot run this program. Returns
/// an empty text if it can. Without this check, the first kernel would fail on an older GPU.
inline std::string refusal_of(int major, int minor) {
  if (10 * major + minor >= oldest_gpu)
    return "";
  const auto text = [](int capability) {
    return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
  };
  return "has compute capability " + text(10 * major + minor) + ", and this program needs "
    + text(oldest_gpu) + (oldest_gpu == 80 ? " (A100)" : "")
    + " or newer. Use another GPU, or the CPU";
}

} // namespace troupe::cuda
