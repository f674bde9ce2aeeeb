#pragma once

#include <cstddef>
#include <string>

namespace troupe::cuda {

/// The text of an error: the GPU has too little free memory.
/// @param gpu the name of the GPU; empty if it is not known
/// @param bytes how much memory was requested at once; 0 if it is not known, because a library
/// requested it
/// @param free, total bytes of the GPU's memory; `total` is 0 if they are not known
inline std::string out_of_memory(const std::string& gpu, std::size_t bytes, std::size_t free,
                                 std::size_t total) {
  const auto megabytes = [](std::size_t x) { return std::to_string(x / 1'000'000) + " MB"; };
  std::string result = "out of memory of the GPU" + (gpu.empty() ? "" : " " + gpu);
  std::string numbers;
  if (bytes > 0)
    numbers = megabytes(bytes) + " are needed at once";
  if (total > 0)
    numbers +=
      (numbers.empty() ? "" : ", ") + megabytes(free) + " of " + megabytes(total) + " are free";
  return result + (numbers.empty() ? "" : ": " + numbers)
    + ". Use a smaller batch or model, or end other programs";
}

} // namespace troupe::cuda
