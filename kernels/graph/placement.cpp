#include "kernels/graph/placement.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// A cut moves to the end of a row only if the distance is at most 1/8 of a part. A part is the
/// whole vector divided by the number of parts.
constexpr std::size_t least_part_of_share = 8;

std::size_t nearest(std::size_t to, std::size_t below, std::size_t above) {
  return to - below <= above - to ? below : above;
}

std::size_t nearest_row(const layout& x, std::size_t offset) {
  const auto& tensor = x.entries()[x.entry_at(offset)];
  const auto rows = tensor.shape.rank() == 0 ? 1 : static_cast<std::size_t>(tensor.shape[0]);
  const auto width = tensor.size / rows;
  const auto below = offset - (offset - tensor.offset) % width;
  return nearest(offset, below, below + width);
}

/// The last of the ascending `ends` that is at most `limit`.
std::size_t last_end(const std::vector<std::size_t>& ends, std::size_t limit) {
  return *(std::ranges::upper_bound(ends, limit) - 1);
}

/// True if `parts` consecutive parts of at most `most` elements can cover the whole vector, where
/// each part must end at one of `ends`.
bool fits(const std::vector<std::size_t>& ends, std::size_t parts, std::size_t most) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < parts && begin < ends.back(); ++i)
    begin = last_end(ends, begin + most);
  return begin == ends.back();
}

/// The smallest possible size of the largest part if the vector is divided into `parts` consecutive
/// parts that end at `ends`.
std::size_t least_most(const std::vector<std::size_t>& ends, std::size_t parts) {
  std::size_t too_small = 0;
  std::size_t enough = ends.back();
  while (enough - too_small > 1) {
    const auto middle = too_small + (enough - too_small) / 2;
    (fits(ends, parts, middle) ? enough : too_small) = middle;
  }
  return enough;
}

std::vector<range> between(const std::vector<std::size_t>& cuts) {
  std::vector<range> result;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
    result.push_back({cuts[i], cuts[i + 1]});
  return result;
}

} // namespace

std::vector<range> cut_at_rows(const layout& x, std::size_t parts) {
  if (parts == 0)
    return {};
  const auto farthest = x.size() / parts / least_part_of_share;
  std::vector<std::size_t> cuts{0};
  for (std::size_t i = 1; i < parts; ++i) {
    const auto even = part_of(x.size(), parts, i).begin;
    const auto row = even < x.size() ? nearest_row(x, even) : even;
    const auto distance = std::max(row, even) - std::min(row, even);
    cuts.push_back(distance <= farthest ? row : even);
  }
  cuts.push_back(x.size());
  return between(cuts);
}

std::vector<range> cut_at_tensors(const layout& x, std::size_t parts) {
  std::vector<std::size_t> ends{0};
  for (const auto& tensor : x.entries())
    ends.push_back(tensor.elements().end);
  const auto most = least_most(ends, parts);
  // earliest[i]: the earliest position at which part i may begin such that parts i, i + 1, ... can
  // reach the end without exceeding `most`. Computed from the last part to the first.
  std::vector<std::size_t> earliest(parts + 1, x.size());
  for (std::size_t i = parts; i-- > 0;) {
    const auto least = earliest[i + 1] - std::min(most, earliest[i + 1]);
    earliest[i] = *std::ranges::lower_bound(ends, least);
  }
  std::vector<std::size_t> cuts{0};
  for (std::size_t i = 0; i < parts; ++i) {
    const auto begin = cuts.back();
    const auto even = begin + (x.size() - begin) / (parts - i);
    const auto end = nearest(even, last_end(ends, even), *std::ranges::lower_bound(ends, even));
    // This part and each of the remaining parts get at least one tensor, if there are enough
    // tensors.
    const auto next = std::ranges::upper_bound(ends, begin);
    const auto least = std::max(earliest[i + 1], next == ends.end() ? begin : *next);
    const auto rest = std::min(parts - i, ends.size());
    const auto limit = std::min(end, ends[ends.size() - rest]);
    cuts.push_back(std::clamp(limit, least, last_end(ends, begin + most)));
  }
  return between(cuts);
}

} // namespace troupe
