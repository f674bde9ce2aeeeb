#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// A grey square image with a line of text below it.
struct picture {
  std::size_t side = 0;
  std::vector<float> pixels; ///< (side, side), 0 (paper) to 1 (ink)
  std::string caption;
};

/// Pictures of one size drawn in characters, beside each other as far as `columns` allow, one line
/// per two rows of pixels. Margins that are blank in all of them are left out.
std::string draw(std::span<const picture> pictures, std::size_t columns = 80);

} // namespace troupe
