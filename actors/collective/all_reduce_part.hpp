#pragma once

#include "actors/collective/direct_collective.hpp"

#include <variant>
#include <vector>

namespace troupe {

/// One rank's part in one all-reduce, by either schedule. Plain state.
class all_reduce_part {
public:
  /// @param own this rank's vector, held until the all-reduce ends; its elements are of the type
  /// `place.elements`
  /// @param send the pieces to send are appended to it
  all_reduce_part(all_reduce_schedule how, const ring_place& place, payload own,
                  std::vector<addressed_piece>& send);

  /// Takes a piece from another rank. Appends the pieces to send to `send`.
  piece_fate receive(std::size_t from, ring_piece piece, std::vector<addressed_piece>& send);

  bool complete() const noexcept;

  /// The sum over ranks, once complete; all ranks have the same bits.
  const payload& sum() const noexcept;

  /// The first step with a piece that has not arrived; 0 once complete.
  std::uint32_t awaited_step() const;

  /// The ranks that must send the missing pieces of this step.
  std::vector<std::size_t> awaited_ranks() const;

private:
  ring_place place_;
  std::variant<ring_collective, direct_collective> state_;
};

} // namespace troupe
