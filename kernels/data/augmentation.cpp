#include "kernels/data/augmentation.hpp"

#include "kernels/random.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// Shifts a line: new element i is the old element i + shift, or 0 outside the line. `element`
/// gives access to element i of the line.
template <class F>
void shift_line(std::ptrdiff_t size, std::ptrdiff_t shift, F element) {
  const auto moved = [&](std::ptrdiff_t i) {
    const auto from = i + shift;
    return from >= 0 && from < size ? element(from) : 0.0F;
  };
  if (shift >= 0)
    for (std::ptrdiff_t i = 0; i < size; ++i)
      element(i) = moved(i);
  else
    for (auto i = size - 1; i >= 0; --i)
      element(i) = moved(i);
}

} // namespace

void augment(std::span<float> image, const shape& dims, const augmentation& how,
             std::uint64_t key) noexcept {
  const auto height = static_cast<std::ptrdiff_t>(dims[1]);
  const auto width = static_cast<std::ptrdiff_t>(dims[2]);
  const auto channels = static_cast<std::ptrdiff_t>(dims[0]);
  random_stream random{key};
  const auto places = 2 * how.crop_padding + 1;
  const auto padding = static_cast<std::ptrdiff_t>(how.crop_padding);
  const bool flips = how.flip && random.below(2) == 1;
  const auto down = static_cast<std::ptrdiff_t>(random.below(places)) - padding;
  const auto right = static_cast<std::ptrdiff_t>(random.below(places)) - padding;
  for (std::ptrdiff_t c = 0; c < channels; ++c) {
    float* const plane = image.data() + c * height * width;
    for (std::ptrdiff_t y = 0; y < height; ++y) {
      float* const row = plane + y * width;
      if (flips)
        std::reverse(row, row + width);
      if (right != 0)
        shift_line(width, right, [row](std::ptrdiff_t i) -> float& { return row[i]; });
    }
    if (down != 0)
      for (std::ptrdiff_t x = 0; x < width; ++x)
        shift_line(height, down,
                   [plane, width, x](std::ptrdiff_t i) -> float& { return plane[i * width + x]; });
  }
}

} // namespace troupe
