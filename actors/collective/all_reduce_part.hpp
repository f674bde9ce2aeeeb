#pragma once

#include "actors/collective/direct_collective.hpp"

#include <variant>
#include <vector>

namespace troupe {

/// One rank's part in one all-reduce, by either schedule. Plain state.
class all_reduce_part {
public:
  /// @param own this rank's vector, held until the all-reduce ends; its elements are
  /// `place.elements`
  /// @param send what is to be sent is appended
  all_reduce_part(all_reduce_schedule how, const ring_place& place, payload own,
                  std::vector<addressed_piece>& send);

  /// A piece of another rank, which comes after the constructor. What is to be sent is appended.
  piece_fate receive(std::size_t from, ring_piece piece, std::vector<addressed_piece>& send);

  bool complete() const noexcept;

  /// The sum over ranks, once complete; of the same bits on all ranks.
  const payload& sum() const noexcept;

  /// The first step of which a piece is still to come; 0 once complete.
  std::uint32_t awaited_step() const;

  /// The ranks that are to send it.
  std::vector<std::size_t> awaited_ranks() const;

private:
  ring_place place_;
  std::variant<ring_collective, direct_collective> state_;
};

} // namespace troupe
