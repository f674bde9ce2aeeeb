#include "kernels/range.hpp"

#include <algorithm>
#include <stdexcept>

namespace troupe {

range intersect(range a, range b) noexcept {
  const auto begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

range part_of(std::size_t n, std::size_t parts, std::size_t index) noexcept {
  const auto size = n / parts;
  const auto larger = n % parts;
  const auto begin = index * size + std::min(index, larger);
  return {begin, begin + size + (index < larger ? 1 : 0)};
}

std::vector<range> split_evenly(std::size_t n, std::size_t parts) {
  if (parts == 0)
    throw std::invalid_argument("split_evenly: a range cannot be split into 0 parts");
  std::vector<range> result(parts);
  for (std::size_t i = 0; i < parts; ++i)
    result[i] = part_of(n, parts, i);
  return result;
}

} // namespace troupe
