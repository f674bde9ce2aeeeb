#include "kernels/range.hpp"

#include <algorithm>
#include <stdexcept>

namespace troupe {

range intersect(range a, range b) noexcept {
  const auto begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

std::size_t elements_of(const range_list& x) noexcept {
  std::size_t result = 0;
  for (const auto& part : x)
    result += part.size();
  return result;
}

range_list cut(const range_list& x, range where) {
  range_list result;
  const auto first = std::ranges::upper_bound(x, where.begin, {}, &range::end);
  for (auto i = first; i != x.end() && i->begin < where.end; ++i) {
    const auto part = intersect(*i, where);
    result.push_back({part.begin - where.begin, part.end - where.begin});
  }
  return result;
}

range_list unite(const range_list& a, const range_list& b) {
  range_list all(a.size() + b.size());
  std::ranges::merge(a, b, all.begin(), {}, &range::begin, &range::begin);
  range_list result;
  for (const auto& x : all)
    if (!result.empty() && x.begin <= result.back().end)
      result.back().end = std::max(result.back().end, x.end);
    else
      result.push_back(x);
  return result;
}

range_list intersect(const range_list& a, const range_list& b) {
  range_list result;
  for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end();) {
    const auto both = intersect(*i, *j);
    if (!both.empty())
      result.push_back(both);
    if (i->end < j->end)
      ++i;
    else
      ++j;
  }
  return result;
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
