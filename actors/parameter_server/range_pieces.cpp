#include "actors/parameter_server/range_pieces.hpp"

#include <algorithm>

namespace troupe {

namespace {

constexpr std::size_t piece_elements = (std::size_t{64} << 10) / sizeof(float);
constexpr std::size_t most_pieces = 64;

} // namespace

range_pieces range_pieces::cut(range where) {
  range_pieces result{where};
  result.count_ =
    std::clamp<std::size_t>((where.size() + piece_elements - 1) / piece_elements, 1, most_pieces);
  return result;
}

} // namespace troupe
