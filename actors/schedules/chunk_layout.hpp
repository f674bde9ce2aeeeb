#pragma once

#include "kernels/range.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

/// How a vector is divided for an all-reduce: into one segment per rank (split_evenly), and each
/// segment into chunks, which are sent one after the other. The layout is the same on all ranks.
class chunk_layout {
public:
  /// @param ranks at least 1; throws std::invalid_argument otherwise
  /// @param chunk_elements number of elements in a chunk, at least 1; the last chunk of a segment
  /// may be smaller
  chunk_layout(std::size_t elements, std::size_t ranks, std::size_t chunk_elements);

  std::size_t elements() const noexcept { return segments_.back().end; }
  std::size_t ranks() const noexcept { return segments_.size(); }

  /// The elements of segment s, which must exist.
  const range& segment(std::size_t s) const noexcept { return segments_[s]; }

  /// Number of chunks in a segment. Segment 0 always has a chunk, because ranks must exchange
  /// headers even if there are no elements to add. Any other segment without elements has no chunk.
  std::uint32_t chunks(std::size_t segment) const noexcept;

  /// The elements of a chunk, which must exist.
  range where(std::size_t segment, std::uint32_t chunk) const noexcept;

  /// The number of a chunk, counted over all segments. number(ranks(), 0) is the total number of
  /// chunks.
  std::size_t number(std::size_t segment, std::uint32_t chunk) const noexcept {
    return first_[segment] + chunk;
  }

private:
  std::vector<range> segments_;
  std::vector<std::size_t> first_;
  std::size_t chunk_elements_;
};

} // namespace troupe
