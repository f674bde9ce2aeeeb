#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// A square grey image with a line of text below it.
struct picture {
  std::size_t side = 0;
  std::vector<float> pixels; ///< (side, side), 0 (paper) to 1 (ink)
  std::string caption;
};

/// Draws pictures of equal size with characters. Places them side by side, up to a width of
/// `columns` characters. A line of text shows two rows of pixels. Margins that are blank in all
/// pictures are removed.
std::string draw(std::span<const picture> pictures, std::size_t columns = 80);

} // namespace troupe
