#pragma once

#include "kernels/range.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

/// How an all-reduce cuts a vector: in one segment per rank (split_evenly), and each segment in
/// chunks, which travel one behind the other. Plain state; the same at all ranks.
class chunk_layout {
public:
  /// @param ranks at least 1, else std::invalid_argument
  /// @param chunk_elements at least 1: elements of a chunk, except for a segment's last
  chunk_layout(std::size_t elements, std::size_t ranks, std::size_t chunk_elements);

  std::size_t elements() const noexcept { return segments_.back().end; }
  std::size_t ranks() const noexcept { return segments_.size(); }

  /// Elements of a segment, which must exist.
  const range& segment(std::size_t s) const noexcept { return segments_[s]; }

  /// Segment 0 has a chunk even if it has no elements: ranks meet, and exchange their headers, also
  /// where there is nothing to add up. Other empty segments have none.
  std::uint32_t chunks(std::size_t segment) const noexcept;

  /// Elements of a chunk, which must exist.
  range where(std::size_t segment, std::uint32_t chunk) const noexcept;

  /// The number of a chunk, counted over all segments; of chunk 0 of segment `ranks()`: how many
  /// there are.
  std::size_t number(std::size_t segment, std::uint32_t chunk) const noexcept {
    return first_[segment] + chunk;
  }

private:
  std::vector<range> segments_;
  std::vector<std::size_t> first_;
  std::size_t chunk_elements_;
};

} // namespace troupe
