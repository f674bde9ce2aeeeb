#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/mixed.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::bench {

/// Random numbers from -1 to 1, rounded to this type. Calls with the same name return the same
/// numbers.
std::vector<float> random_pattern(std::size_t n, std::string_view name,
                                  dtype type = dtype::float32);

/// Elements of float32, bfloat16 or float16 in device memory.
class gpu_values {
public:
  gpu_values(cuda::device& gpu, std::size_t n, dtype type = dtype::float32);

  /// Fills the memory with repetitions of the pattern. The numbers of the pattern must already be
  /// rounded to the type of the elements.
  void fill(std::span<const float> pattern);
  /// Compares elements [first, first + n) with a repeated pattern: the first elements, some in the
  /// middle, and the last ones. Returns an empty string if they differ by at most absolute +
  /// relative * |expected|. Otherwise, returns the position and the two values of a wrong element.
  std::string differs(std::span<const float> pattern, double absolute, double relative,
                      std::size_t first = 0, std::size_t n = ~std::size_t{0}) const;
  /// Elements [first, first + n), as float32.
  std::vector<float> read(std::size_t first, std::size_t n) const;

  std::size_t size() const noexcept { return size_; }
  void* data() const noexcept { return memory_.data(); }
  float* floats() const noexcept { return reinterpret_cast<float*>(memory_.data()); }
  cuda::mixed_input input() const { return {memory_.data(), type_}; }
  cuda::mixed_output output() const { return {memory_.data(), type_}; }

private:
  cuda::device* gpu_;
  std::size_t size_;
  dtype type_;
  cuda::buffer<std::byte> memory_;
};

} // namespace troupe::bench
