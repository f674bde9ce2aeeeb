#pragma once

#include "kernels/data/images.hpp"

#include <cstdint>
#include <memory>

namespace troupe {

inline constexpr std::size_t digit_side = 28;
inline constexpr std::size_t digit_classes = 10;

/// Generates `count` digits: grey images of 28 x 28 pixels, in 10 classes. Each digit consists of
/// strokes under a random affine distortion, with random control points, stroke width, ink and
/// noise. For a small MLP, these digits are about as hard as MNIST.
///
/// Digit i depends only on (seed, i). So two sets with the same seed begin with the same digits,
/// even if their sizes differ. The bytes are the same on every machine, because the generator uses
/// integer randomness and only basic IEEE operations, without fused multiply-adds or library
/// functions.
std::shared_ptr<const image_dataset> generate_digits(std::uint64_t count, std::uint64_t seed);

} // namespace troupe
