#pragma once

#include "kernels/cpu/conversions.hpp"
#include "kernels/graph/dtype.hpp"

#include <cstdint>
#include <vector>

namespace troupe::test {

inline constexpr dtype narrow_types[] = {dtype::bfloat16, dtype::float16};

inline std::vector<std::uint16_t> narrowed(dtype type, const std::vector<float>& x) {
  std::vector<std::uint16_t> result(x.size());
  cpu::narrow(type, x.size(), x.data(), result.data());
  return result;
}

inline std::vector<float> widened_all(dtype type, const std::vector<std::uint16_t>& x) {
  std::vector<float> result(x.size());
  cpu::widen(type, x.size(), x.data(), result.data());
  return result;
}

} // namespace troupe::test
