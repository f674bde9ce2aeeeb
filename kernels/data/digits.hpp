#pragma once

#include "kernels/data/images.hpp"

#include <cstdint>
#include <memory>

namespace troupe {

inline constexpr std::size_t digit_side = 28;
inline constexpr std::size_t digit_classes = 10;

/// Generates `count` digits, 28 x 28, 10 classes: strokes under a random affine distortion, with
/// random control points, stroke width, ink and noise. About as hard as MNIST for a small MLP.
///
/// Digit i depends only on (seed, i), so the first n digits of a larger set are the set of n
/// digits. The bytes are the same on every machine: integer randomness, only basic IEEE operations,
/// no fused multiply-add, no library functions.
std::shared_ptr<const image_dataset> generate_digits(std::uint64_t count, std::uint64_t seed);

} // namespace troupe
