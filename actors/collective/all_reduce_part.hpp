#pragma once

#include "actors/collective/direct_collective.hpp"

#include <variant>
#include <vector>

namespace troupe {

/// One rank's part in one all-reduce, with any schedule (all_reduce_schedule). This is a plain
/// object, not an actor: the owner passes in pieces of other ranks, and sends the pieces that this
/// class returns.
class all_reduce_part {
public:
  /// @param own this rank's vector, with elements of type `place.elements`; this class keeps a
  /// reference to it until the all-reduce ends
  /// @param send the pieces to send are appended to it
  all_reduce_part(all_reduce_schedule how, const ring_place& place, payload own,
                  std::vector<addressed_piece>& send);

  /// Takes a piece from another rank. Appends the pieces to send to `send`.
  piece_fate receive(std::size_t from, ring_piece piece, std::vector<addressed_piece>& send);

  bool complete() const noexcept;

  /// The sum over all ranks, once complete. All ranks get the same bits.
  const payload& sum() const noexcept;

  /// The first step with a missing piece; 0 once complete.
  std::uint32_t awaited_step() const;

  /// The ranks that must send the missing pieces of this step.
  std::vector<std::size_t> awaited_ranks() const;

private:
  ring_place place_;
  std::variant<ring_collective, direct_collective> state_;
};

} // namespace troupe
