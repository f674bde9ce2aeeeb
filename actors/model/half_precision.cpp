#include "actors/model/half_precision.hpp"

#include <bit>
#include <cmath>
#include <limits>

namespace troupe {

float from_half(std::uint16_t bits) {
  constexpr int bias = 15;
  constexpr int fraction_bits = 10;
  const int exponent = bits >> fraction_bits & 0x1F;
  const int fraction = bits & 0x3FF;
  const bool special = exponent == 0x1F;
  float result = special && fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
    : special                             ? std::numeric_limits<float>::infinity()
    : exponent == 0
    ? std::ldexp(static_cast<float>(fraction), 1 - bias - fraction_bits)
    : std::ldexp(static_cast<float>(fraction + 0x400), exponent - bias - fraction_bits);
  return (bits & 0x8000) != 0 ? -result : result;
}

float from_brain(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16U);
}

} // namespace troupe
