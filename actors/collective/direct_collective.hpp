#pragma once

#include "actors/ring/ring_collective.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

/// A piece, and the rank that receives it.
struct addressed_piece {
  std::size_t to = 0;
  ring_piece piece;
};

/// One rank's part in one all-reduce with the schedule `direct` or `one_shot`
/// (all_reduce_schedule). This is a plain object, not an actor: the owner passes in pieces from the
/// other ranks, and sends the pieces that this class returns. A piece with elements of a single
/// rank has step 1. A piece with a sum has step 2.
///
/// The rank that owns a segment adds it up. With `direct`, each rank owns one segment. With
/// `one_shot`, the whole vector is one segment, and every rank owns it. Segments are sent in
/// chunks, one chunk per piece. The owner adds up a chunk as soon as it has this chunk from all
/// ranks. It adds in the order of ranks, so all ranks get the same bits in every run. It reads each
/// rank's elements once.
///
/// When elements are added up or copied, this class drops its references to them, so that their
/// memory can be reused.
class direct_collective {
public:
  /// @param how `direct` or `one_shot`
  /// @param own this rank's vector
  /// @param send the pieces to send are appended to it
  direct_collective(all_reduce_schedule how, const ring_place& place, payload own,
                    std::vector<addressed_piece>& send);

  /// Takes a piece from another rank. Appends the pieces to send to `send`.
  piece_fate receive(std::size_t from, ring_piece piece, std::vector<addressed_piece>& send);

  bool complete() const noexcept { return missing_ == 0; }

  /// The sum over all ranks, once complete.
  const payload& sum() const noexcept { return sum_; }

  /// The first step with a missing piece; 0 once complete.
  std::uint32_t awaited_hop() const noexcept;

  /// The ranks that must send the missing pieces of this step, in order.
  std::vector<std::size_t> awaited_ranks() const;

private:
  /// One chunk of this rank's segment. `parts` has the elements of each rank, and is empty once
  /// they are added up.
  struct gathering {
    std::vector<payload> parts;
    /// For each rank: true once its elements have arrived. They may be an empty vector, so `parts`
    /// does not show this.
    std::vector<bool> came;
    std::size_t missing = 0;
  };

  piece_fate judge(std::size_t from, const ring_piece& piece) const;
  void gather(std::size_t from, ring_piece piece, std::vector<addressed_piece>& send);
  void add_up(const std::vector<payload>& parts, payload total) const;

  bool one_shot() const noexcept { return how_ == all_reduce_schedule::one_shot; }
  /// The segment that this rank adds up.
  std::uint32_t mine() const noexcept {
    return one_shot() ? 0 : static_cast<std::uint32_t>(place_.rank);
  }

  all_reduce_schedule how_;
  ring_place place_;
  chunk_layout cut_;
  payload own_;
  payload sum_;
  std::vector<gathering> gathering_;
  /// For each chunk, by chunk_layout::number(): true once this rank has its sum.
  std::vector<bool> came_;
  /// Number of chunks whose sum is missing, and the number of chunks that this rank must still add
  /// up.
  std::size_t missing_ = 0;
  std::size_t to_add_ = 0;
};

} // namespace troupe
