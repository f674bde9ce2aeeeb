#pragma once

#include "actors/schedules/chunk_layout.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

/// Which messages the ranks of an all-reduce send. Let n be the number of elements and R the number
/// of ranks. `direct` and `ring` cut the vector into R segments and send 2 (R - 1) n elements in
/// total. They differ in the number of steps, and in how many ranks exchange messages at once.
enum class all_reduce_schedule : std::uint8_t {
  /// 2 steps: every rank gets its own segment from all other ranks and adds up in the order of
  /// ranks. Then it sends the sum to all other ranks. Rank r sends n + (R - 2) |segment r|
  /// elements. There are few steps and additions, but each rank exchanges messages with all others
  /// at once. This schedule suits ranks that read each other's memory.
  direct,
  /// 2 (R - 1) steps: each segment goes round the ring of ranks twice, first to be added up
  /// (reduce-scatter), then to be copied (all-gather). Each rank sends only to the next rank. Rank
  /// r sends 2 n elements minus the lengths of segments r + 1 and r + 2. This is 2 (R - 1) / R n if
  /// R divides n. Segment s is added up in the order of ranks s, s + 1, ... All links carry the
  /// same load, so this schedule suits many ranks on a network. Source: Patarasuk and Yuan,
  /// "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
  ring,
  /// 1 step: every rank gets the whole vectors of all other ranks, and adds up in the order of
  /// ranks. There is only one segment. Rank r sends (R - 1) n elements, R / 2 times as many as with
  /// the other schedules. It suits two ranks, and short vectors.
  one_shot,
};

/// The name of the schedule, such as "direct".
const char* to_string(all_reduce_schedule x) noexcept;

/// The number of segments into which a schedule cuts a vector.
constexpr std::size_t segments_of(all_reduce_schedule how, std::size_t ranks) noexcept {
  return how == all_reduce_schedule::one_shot ? 1 : ranks;
}

/// The schedule for a vector of this many bytes. All ranks choose the same schedule, because the
/// choice depends only on these arguments.
///
/// On a network, the choice is `one_shot` for two ranks and for vectors of up to 4 KiB. For longer
/// vectors, it is `direct` if no segment is longer than a chunk. (A ring would then only add steps:
/// it is fast only if a rank can send one chunk while it receives the next.) For still longer
/// vectors, it is `ring`, in which a rank receives from only one other rank.
///
/// In shared memory, the choice is `one_shot` for vectors of up to 4 KiB, or up to 1 MiB for two
/// ranks. Otherwise it is `direct`, which reads each vector once.
all_reduce_schedule schedule_for(std::size_t ranks, std::size_t bytes, std::size_t chunk_bytes,
                                 bool in_shared_memory = false) noexcept;

/// A chunk that one rank sends to another rank.
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

/// All chunks that `rank` (one of `ranks`) sends or receives, in the order of steps. `cut` must
/// have segments_of() segments.
std::vector<all_reduce_move> moves_of(all_reduce_schedule how, std::size_t rank, std::size_t ranks,
                                      const chunk_layout& cut);

/// The rank that receives a segment in a step of the ring. Segment s starts at rank s.
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
