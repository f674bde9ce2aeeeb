#pragma once

#include "kernels/host_device.hpp"

#include <bit>
#include <cstdint>

// Floating-point numbers of 16 bits, and their conversions.
//
// The conversions give the same bits even if the processor treats denormal numbers as zero. The
// only operand that may be a denormal float32 is added to 0.5. The sum is 0.5 whether or not this
// operand is treated as zero. The conversions have no branches, so compilers can vectorize loops
// that call them. Device code uses the instructions of the GPU. The results of a GPU are the same,
// except for the bits of a NaN (PTX ISA, section "cvt").

namespace troupe {

/// The upper half of a float32: 8 bits of exponent, 7 of fraction. The largest number is about
/// 3.39e38. The next number after 1 is 1 + 2^-7.
struct bfloat16 {
  std::uint16_t bits = 0;
  bool operator==(const bfloat16&) const = default;
};

/// IEEE 754's binary16: 5 bits of exponent, 10 of fraction. The largest number is 65504, and the
/// smallest number above 0 is 2^-24. The next number after 1 is 1 + 2^-10.
struct float16 {
  std::uint16_t bits = 0;
  bool operator==(const float16&) const = default;
};

/// Converts to float32, which represents every bfloat16 exactly. A NaN stays a NaN.
TROUPE_HOST_DEVICE inline float widened(bfloat16 x) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

/// Converts to float32, which represents every float16 exactly. A NaN stays a NaN, and becomes
/// quiet.
TROUPE_HOST_DEVICE inline float widened(float16 x) noexcept {
#ifdef __CUDA_ARCH__
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
  return result;
#else
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000U) << 16;
  const std::uint32_t rest = static_cast<std::uint32_t>(x.bits & 0x7fffU) << 13;
  // The exponent bias of float32 is larger by 112 than that of float16.
  constexpr std::uint32_t shift = 112U << 23;
  constexpr std::uint32_t least_normal = 0x400U << 13;
  constexpr std::uint32_t infinite = 0x7c00U << 13;
  // A denormal number is fraction * 2^-24 = (2^-14 + fraction * 2^-24) - 2^-14.
  const float denormal =
    std::bit_cast<float>(rest + shift + (1U << 23)) - std::bit_cast<float>(shift + (1U << 23));
  const std::uint32_t normal = rest + shift;
  const std::uint32_t special = (rest + 2 * shift) | (rest > infinite ? 0x400000U : 0U);
  const std::uint32_t magnitude = rest >= infinite ? special
    : rest >= least_normal                         ? normal
                                                   : std::bit_cast<std::uint32_t>(denormal);
  return std::bit_cast<float>(sign | magnitude);
#endif
}

/// Rounds to the nearest bfloat16. If two numbers are equally near, the result is the one whose
/// last bit is 0. Numbers that are too large become infinite. A NaN stays a NaN, becomes quiet, and
/// loses the lower bits of its payload.
TROUPE_HOST_DEVICE inline void narrow(float x, bfloat16& result) noexcept {
#ifdef __CUDA_ARCH__
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
#else
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = bits + 0x7fffU + (bits >> 16 & 1U);
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  result.bits = static_cast<std::uint16_t>((nan ? bits | 0x400000U : rounded) >> 16);
#endif
}

/// Rounds to the nearest float16. If two numbers are equally near, the result is the one whose last
/// bit is 0. Numbers from 65520 on become infinite. Numbers below 2^-14 are rounded to multiples of
/// 2^-24 (denormal numbers of float16).
TROUPE_HOST_DEVICE inline void narrow(float x, float16& result) noexcept {
#ifdef __CUDA_ARCH__
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
#else
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  const std::uint32_t rest = bits & 0x7fffffffU;
  constexpr std::uint32_t shift = 112U << 23;
  constexpr std::uint32_t least_normal = 113U << 23;
  // 65520 is the middle between 65504, the largest float16, and 65536. From there on, numbers are
  // rounded to infinity.
  constexpr std::uint32_t too_large = 0x477ff000U;
  constexpr std::uint32_t infinite = 0x7f800000U;
  const std::uint32_t normal = (rest - shift + 0xfffU + (rest >> 13 & 1U)) >> 13;
  // The last bit of a float32 between 0.5 and 1 has the value 2^-24. Therefore, the addition of 0.5
  // rounds to a multiple of 2^-24.
  constexpr std::uint32_t half = 126U << 23;
  const bool is_denormal = rest < least_normal;
  const float small = std::bit_cast<float>(is_denormal ? rest : 0U);
  const std::uint32_t denormal =
    std::bit_cast<std::uint32_t>(small + std::bit_cast<float>(half)) - half;
  const std::uint32_t nan = 0x7e00U | (rest >> 13 & 0x3ffU);
  const std::uint32_t magnitude = rest > infinite ? nan
    : rest >= too_large                           ? 0x7c00U
    : is_denormal                                 ? denormal
                                                  : normal;
  result.bits = static_cast<std::uint16_t>(sign | magnitude);
#endif
}

/// x, rounded to bfloat16 or float16.
template <class Narrow>
TROUPE_HOST_DEVICE Narrow rounded_to(float x) noexcept {
  Narrow result;
  narrow(x, result);
  return result;
}

} // namespace troupe
