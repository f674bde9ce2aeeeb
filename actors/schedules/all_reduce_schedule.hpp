#pragma once

#include "actors/schedules/chunk_layout.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

/// The messages of an all-reduce of n elements over R ranks. `direct` and `ring` cut the vector
/// into R segments and send the same number of elements in total: 2 (R - 1) n. Their speed depends
/// on the number of steps and on the cost of sending.
enum class all_reduce_schedule : std::uint8_t {
  /// 2 steps: every rank reads its own segment from all other ranks, adds up in the order of ranks,
  /// and then all other ranks read the sum. Rank r sends n + (R - 2) |segment r| elements. This
  /// schedule has the fewest steps and additions, but each rank talks to all others at once. It
  /// suits peers that read each other's memory.
  direct,
  /// 2 (R - 1) steps: each segment goes round the ring of ranks twice, first to be added up
  /// (reduce-scatter), then to be copied (all-gather). Each rank sends only to the next rank. Rank
  /// r sends 2 n elements minus the lengths of segments r + 1 and r + 2. This is 2 (R - 1) / R n if
  /// R divides n. Segment s is added up in the order of ranks s, s + 1, ... All links carry the
  /// same load, so this schedule suits many ranks on a network. Patarasuk and Yuan, "Bandwidth
  /// optimal all-reduce algorithms for clusters of workstations", 2009.
  ring,
  /// 1 step: every rank reads the whole vectors of all other ranks, and adds up in the order of
  /// ranks. There is only one segment. Rank r sends (R - 1) n elements, R / 2 times as many as with
  /// the other schedules. It suits two ranks, and short vectors.
  one_shot,
};

/// "direct".
const char* to_string(all_reduce_schedule x) noexcept;

/// The number of segments into which a schedule cuts a vector.
constexpr std::size_t segments_of(all_reduce_schedule how, std::size_t ranks) noexcept {
  return how == all_reduce_schedule::one_shot ? 1 : ranks;
}

/// The schedule for a vector of this many bytes. All ranks choose the same schedule, because the
/// choice depends only on these arguments.
///
/// On a network, the choice is `one_shot` for two ranks and for vectors of up to 4 KiB. For longer
/// vectors, it is `direct` if no segment is longer than a chunk. A ring would then only add steps,
/// because a rank has no second chunk to send while it waits for the first. For still longer
/// vectors it is `ring`, where a rank never receives from all other ranks at once.
///
/// In shared memory, the choice is `one_shot` for vectors of up to 4 KiB, or up to 1 MiB for two
/// ranks. Otherwise it is `direct`, which reads each vector once.
all_reduce_schedule schedule_for(std::size_t ranks, std::size_t bytes, std::size_t chunk_bytes,
                                 bool in_shared_memory = false) noexcept;

/// A chunk on its way from one rank to another.
struct all_reduce_move {
  /// Counts from 1. The chunks that a rank sends in step k + 1 depend on the chunks that it
  /// received in step k.
  std::uint32_t step = 0;
  std::size_t from = 0;
  std::size_t to = 0;
  std::uint32_t segment = 0;
  std::uint32_t chunk = 0;
  /// The elements of the chunk.
  range where;
  /// True if the receiver adds the chunk to its own values. False if the chunk is already the sum,
  /// which the receiver copies.
  bool adds = false;

  bool operator==(const all_reduce_move&) const = default;
};

/// Number of steps of an all-reduce over `ranks` ranks; 0 for a single rank.
std::uint32_t steps_of(all_reduce_schedule how, std::size_t ranks) noexcept;

/// All chunks that `rank` (one of `ranks`) sends or receives, in the order of steps. `cut` has
/// segments_of() segments. A pure function of its arguments.
std::vector<all_reduce_move> moves_of(all_reduce_schedule how, std::size_t rank, std::size_t ranks,
                                      const chunk_layout& cut);

/// The rank that receives a segment in a step of the ring. A segment starts at the rank with its
/// number.
constexpr std::size_t ring_receiver(std::size_t segment, std::size_t step,
                                    std::size_t ranks) noexcept {
  return (segment + step) % ranks;
}

/// The segment whose sum a rank of the ring completes in step `ranks - 1`.
constexpr std::size_t ring_own_segment(std::size_t rank, std::size_t ranks) noexcept {
  return (rank + 1) % ranks;
}

/// The segment that a rank of the ring receives in a step.
constexpr std::size_t ring_received(std::size_t rank, std::size_t step,
                                    std::size_t ranks) noexcept {
  return (rank + ranks - step % ranks) % ranks;
}

} // namespace troupe
