#pragma once

#include "actors/schedules/all_reduce_schedule.hpp"
#include "actors/schedules/element_kind.hpp"
#include "kernels/range.hpp"
#include "messages/buffer.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace troupe {

/// A rank's place in a ring, and how the ring divides and adds up vectors.
struct ring_place {
  std::size_t rank = 0;
  std::size_t ranks = 1;
  /// The largest number of elements in a message. A longer segment is sent in several messages
  /// (chunks), so that the next rank can begin to add before all of them have arrived.
  std::size_t chunk_elements = 65'536;
  /// True if the two halves of an all-reduce (reduce-scatter and all-gather) run as separate
  /// collectives (ring_reductions).
  bool in_halves = false;
  /// True if the ranks add up their gradients on their GPUs (ring_reductions).
  bool on_gpus = false;
  /// The element type of all vectors.
  element_kind elements = element_kind::float32;
  /// Number of elements of the vector by which ranks compare their replicas (check_elements). 0 if
  /// they never compare them.
  std::size_t checked = 0;
  /// True if a ring_work::exchange does not add the two vectors, and the reader of its result adds
  /// them (ring_collective::addend()). Each vector is then sent in one piece.
  bool adds_later = false;
  /// Rounds sums of gradients before they are sent (Job.exchange_precision). Null if they are not
  /// rounded. The complete sum is rounded too, except in a ring_work::exchange, where no sum is
  /// sent.
  /// @param part the range of `values` within the bucket
  std::function<void(std::size_t bucket, range part, std::span<float> values)> round = {};
  /// The number of the bucket, for `round`.
  std::size_t bucket = 0;
};

/// What a ring_collective does: an all-reduce, or one half of it.
enum class ring_work : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  /// An all-reduce of two ranks in one hop instead of two. Each rank sends its whole vector to the
  /// other rank, as a single segment. The number of elements sent is the same as with `all_reduce`.
  /// Each rank adds the two vectors, or the reader of the result adds them
  /// (ring_place::adds_later).
  exchange,
};

/// The segment whose sum this rank completes. A vector has one segment per rank.
constexpr std::size_t own_segment(const ring_place& place) noexcept {
  return ring_own_segment(place.rank, place.ranks);
}

/// A message from a rank to the next rank. It carries a chunk of a segment.
struct ring_piece {
  std::uint32_t segment = 0;
  std::uint32_t chunk = 0;
  /// Number of hops (messages from a rank to the next) that the chunk has made, including this one.
  /// If it is less than `ranks`, the piece is a partial sum over this number of ranks. Otherwise,
  /// the piece is part of the complete sum.
  std::uint32_t hop = 0;
  /// Number of samples in the sum.
  std::uint64_t samples = 0;
  payload data;
};

/// The result of receiving a piece.
enum class piece_fate : std::uint8_t {
  taken,
  /// The same piece arrived before. It is not added twice.
  repeated,
  // The values below mean that the piece does not fit. It is refused, and nothing has changed.
  no_such_bucket,
  no_such_segment,
  no_such_chunk,
  /// The piece belongs to another rank, or other pieces must arrive before it.
  not_due,
  wrong_size,
  /// The number of samples exceeds the limit, or a complete sum has fewer samples than this rank
  /// contributed.
  wrong_samples,
};

constexpr bool refused(piece_fate x) noexcept {
  return x != piece_fate::taken && x != piece_fate::repeated;
}

/// The text for error messages, such as "its size is wrong".
const char* describe(piece_fate x) noexcept;

/// One rank's part in one ring all-reduce (all_reduce_schedule::ring). This is a plain object, not
/// an actor. The owner passes in the pieces from the left neighbour (the previous rank). The owner
/// also sends the pieces that this class returns to the right neighbour (the next rank). A hop is a
/// step of the schedule.
///
/// The order of addition never depends on timing, so all ranks get the same bits in every run.
///
/// Pieces may arrive late and repeatedly. Pieces of different chunks may arrive in any order. For
/// each chunk, a rank expects at most two pieces: first a partial sum, later the complete sum. It
/// takes each of them once.
///
/// Each rank sends 2 (ranks - 1) messages per chunk of a segment, in total 2 (ranks - 1) / ranks *
/// n elements of a vector with n elements.
///
/// Two ranks need only one hop: see ring_work::exchange.
///
/// The two halves of an all-reduce are used separately if a rank changes its own segment of the sum
/// (own_segment) before the other ranks get it. A reduce-scatter ends with this sum on each rank.
/// An all-gather begins with one segment on each rank and ends with all segments on each rank. Each
/// half sends half as many messages.
class ring_collective {
public:
  ring_collective(const ring_place& place, std::size_t elements,
                  ring_work work = ring_work::all_reduce);

  /// Takes this rank's own vector (for all_gather, its own segment), and keeps a reference to it
  /// until the collective ends. Appends the pieces to send to `send`. Call it once.
  /// @param samples number of samples that are summed up in the vector; for all_gather, the total
  /// of all ranks
  void contribute(payload own, std::uint64_t samples, std::vector<ring_piece>& send);

  /// Takes a piece from the left neighbour, possibly before `contribute`. Appends the pieces to
  /// send to `send`.
  piece_fate receive(ring_piece piece, std::vector<ring_piece>& send);

  bool complete() const noexcept { return contributed_ && missing_ == 0; }

  /// The first hop with a missing piece; 0 if nothing is missing.
  std::uint32_t awaited_hop() const;

  /// The sum over all ranks, once complete. For reduce_scatter, only this rank's own segment of the
  /// sum. For all_gather, the segments of all ranks.
  const payload& sum() const noexcept { return sum_; }
  /// With ring_place::adds_later, the complete sum is sum() + addend(), in this order. A reader
  /// that uses each element once can add while it reads, which saves two passes over the memory.
  /// Otherwise empty.
  const payload& addend() const noexcept { return addend_; }
  /// Number of samples in the sum. For reduce_scatter, it is 0 if the own segment has no elements.
  std::uint64_t samples() const noexcept { return samples_; }

private:
  bool comes_here(const ring_piece& piece) const;
  piece_fate judge(const ring_piece& piece) const;
  /// The bits `partial_came` and `sum_came`, which say which pieces of a chunk have arrived.
  std::uint8_t& came(const ring_piece& piece) {
    return came_[cut_.number(piece.segment, piece.chunk)];
  }
  std::uint8_t came(const ring_piece& piece) const {
    return came_[cut_.number(piece.segment, piece.chunk)];
  }
  payload slice(const payload& x, std::size_t begin, std::size_t count) const {
    return slice_elements(x, place_.elements, begin, count);
  }
  bool partial(const ring_piece& piece) const { return piece.hop < place_.ranks; }
  /// Sends a segment of `own_`. The first element of `own_` has the position `offset` in the whole
  /// vector.
  void send_own(std::size_t segment, std::uint32_t hop, std::size_t offset,
                std::vector<ring_piece>& send) const;
  void take(ring_piece piece, std::vector<ring_piece>& send);
  void add_own(ring_piece piece, std::vector<ring_piece>& send);
  void store(const ring_piece& piece);
  void keep_terms(ring_piece piece);
  bool exchanges() const noexcept { return work_ == ring_work::exchange; }
  bool adds_later() const noexcept { return exchanges() && place_.adds_later; }

  ring_place place_;
  ring_work work_;
  chunk_layout cut_;
  /// One byte per chunk: see came().
  std::vector<std::uint8_t> came_;
  bool contributed_ = false;
  payload own_;
  std::uint64_t own_samples_ = 0;
  payload sum_;
  payload addend_;
  std::uint64_t samples_ = 0;
  /// Number of chunks whose complete sum this rank does not have yet. For reduce_scatter: number of
  /// chunks whose partial sum has not arrived (one arrives for each chunk, except those of the
  /// segment that this rank sends first).
  std::size_t missing_ = 0;
  std::vector<ring_piece> early_;
};

} // namespace troupe
