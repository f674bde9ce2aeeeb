#pragma once

#include <cstddef>
#include <vector>

namespace troupe {

/// A contiguous part [begin, end) of the flat parameter vector or of any other sequence, in
/// elements.
struct range {
  std::size_t begin = 0;
  std::size_t end = 0;

  std::size_t size() const noexcept { return end - begin; }
  bool empty() const noexcept { return begin == end; }
  bool contains(std::size_t index) const noexcept { return begin <= index && index < end; }
  bool contains(range other) const noexcept { return begin <= other.begin && other.end <= end; }
  bool operator==(const range&) const = default;
};

/// The intersection of two ranges. If they do not overlap, it is an empty range at the larger
/// `begin`.
range intersect(range a, range b) noexcept;

/// Ranges in ascending order, which do not overlap.
using range_list = std::vector<range>;

std::size_t elements_of(const range_list& x) noexcept;

/// The parts of these ranges within `where`, relative to where.begin.
range_list cut(const range_list& x, range where);

/// The elements that are in both lists.
range_list intersect(const range_list& a, const range_list& b);

/// The elements that are in at least one of two lists. Ranges that touch become one range.
range_list unite(const range_list& a, const range_list& b);

/// Divides [0, n) into `parts` contiguous parts, and returns part number `index`. The sizes of the
/// parts differ by at most one; the larger parts come first. If parts > n, some parts are empty.
/// Requires parts >= 1 and index < parts.
range part_of(std::size_t n, std::size_t parts, std::size_t index) noexcept;

/// All parts of [0, n) (see part_of), in order, for example the shards of a parameter vector or the
/// segments of a ring. Throws std::invalid_argument if `parts` is 0.
std::vector<range> split_evenly(std::size_t n, std::size_t parts);

} // namespace troupe
