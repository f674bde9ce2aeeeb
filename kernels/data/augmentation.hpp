#pragma once

#include "kernels/graph/shape.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe {

/// Random changes to training images.
struct augmentation {
  /// If true, each image is mirrored left to right with probability 1/2.
  bool flip = false;
  /// Each image is padded with this number of zeros on each side. Then it is cut back to its
  /// original size, at a random position.
  std::size_t crop_padding = 0;

  bool empty() const noexcept { return !flip && crop_padding == 0; }
};

/// Applies the random changes to one image, in place.
/// @param image (channels, height, width), row-major.
/// @param dims its shape.
/// @param key determines the changes: the same key gives the same changes.
void augment(std::span<float> image, const shape& dims, const augmentation& how,
             std::uint64_t key) noexcept;

} // namespace troupe
