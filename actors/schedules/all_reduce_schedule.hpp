#pragma once

#include "actors/schedules/chunk_layout.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

/// Who sends what to whom in an all-reduce of n elements over R ranks. Both cut the vector in R
/// segments, and send each element as often: over all ranks 2 (R - 1) n elements. Which is faster
/// depends on the steps, and on what it costs to send.
enum class all_reduce_schedule : std::uint8_t {
  /// 2 steps: every rank reads its segment of all others, adds them up in the order of ranks, and
  /// all others read the sum. Rank r sends n + (R - 2) |segment r| elements. The fewest steps and
  /// additions; a rank talks to all others at once. For peers that read each other's memory.
  direct,
  /// 2 (R - 1) steps: each segment goes round the ring of ranks twice, first to be added up
  /// (reduce-scatter), then to be copied (all-gather). Each rank sends to the next one alone: 2 n
  /// elements without segments r + 1 and r + 2, so 2 (R - 1) / R n where R divides n. Segment s is
  /// added up in the order of ranks s, s + 1, ... No link carries more than another: for many ranks
  /// on a network. Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
  /// workstations", 2009.
  ring,
};

/// "direct".
const char* to_string(all_reduce_schedule x) noexcept;

/// The schedule for a vector of this many bytes, for ranks on a network. direct if there are two
/// ranks, or if no segment is longer than a chunk: then the ring has nothing to send one behind the
/// other, and its steps are all that counts. Else ring, where no rank hears all others at once. The
/// same at all ranks, since it depends on nothing else.
all_reduce_schedule schedule_for(std::size_t ranks, std::size_t bytes,
                                 std::size_t chunk_bytes) noexcept;

/// A chunk on its way from one rank to another.
struct all_reduce_move {
  /// From 1. A rank sends in step k + 1 what follows from what it has received in step k.
  std::uint32_t step = 0;
  std::size_t from = 0;
  std::size_t to = 0;
  std::uint32_t segment = 0;
  std::uint32_t chunk = 0;
  /// Elements of the chunk.
  range where;
  /// The receiver adds it to its own; otherwise it is the sum, and is copied.
  bool adds = false;

  bool operator==(const all_reduce_move&) const = default;
};

/// Number of steps of an all-reduce over `ranks` ranks: 0 for one rank.
std::uint32_t steps_of(all_reduce_schedule how, std::size_t ranks) noexcept;

/// The moves that `rank` sends and receives, in the order of steps. Pure: depends on nothing but
/// its arguments.
std::vector<all_reduce_move> moves_of(all_reduce_schedule how, std::size_t rank,
                                      const chunk_layout& cut);

/// Where a step of the ring takes a segment: it starts at the rank of its number.
constexpr std::size_t ring_receiver(std::size_t segment, std::size_t step,
                                    std::size_t ranks) noexcept {
  return (segment + step) % ranks;
}

/// The segment whose sum a rank of the ring completes, in step R - 1.
constexpr std::size_t ring_own_segment(std::size_t rank, std::size_t ranks) noexcept {
  return (rank + 1) % ranks;
}

/// The segment that a rank of the ring receives in a step.
constexpr std::size_t ring_received(std::size_t rank, std::size_t step,
                                    std::size_t ranks) noexcept {
  return (rank + ranks - step % ranks) % ranks;
}

} // namespace troupe
