#pragma once

#include "actors/ring/ring_collective.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

/// A piece, and the rank that it is for.
struct addressed_piece {
  std::size_t to = 0;
  ring_piece piece;
};

/// One rank's part in one direct all-reduce (all_reduce_schedule::direct). Plain state: it is fed
/// with pieces of the other ranks, and says what to send to them. The hop of a piece is its step: 1
/// for a rank's own elements, 2 for a sum.
///
/// The owner of a segment adds up a chunk once it has that of all ranks, in the order of ranks, at
/// any order of arrival: all ranks get the same bits, in every run. It reads each vector once.
///
/// Own and received payloads are held until they are added up or copied, not longer.
class direct_collective {
public:
  /// @param own this rank's vector
  /// @param send what is to be sent is appended
  direct_collective(const ring_place& place, payload own, std::vector<addressed_piece>& send);

  /// A piece of another rank. What is to be sent is appended.
  piece_fate receive(std::size_t from, ring_piece piece, std::vector<addressed_piece>& send);

  bool complete() const noexcept { return missing_ == 0; }

  /// The sum over ranks, once complete.
  const payload& sum() const noexcept { return sum_; }

  /// The first hop of which a piece is still to come; 0 once complete.
  std::uint32_t awaited_hop() const noexcept;

  /// Ranks whose pieces of that hop are still to come, in order.
  std::vector<std::size_t> awaited_ranks() const;

private:
  /// A chunk of the own segment, by rank; empty once it is added up.
  struct gathering {
    std::vector<payload> parts;
    /// A part without elements is here, too.
    std::vector<bool> came;
    std::size_t missing = 0;
  };

  piece_fate judge(std::size_t from, const ring_piece& piece) const;
  void gather(std::size_t from, ring_piece piece, std::vector<addressed_piece>& send);
  void add_up(const std::vector<payload>& parts, payload total) const;

  ring_place place_;
  chunk_layout cut_;
  payload own_;
  payload sum_;
  std::vector<gathering> gathering_;
  /// By number of the chunk: its sum is here.
  std::vector<bool> came_;
  /// Chunks whose sum is not here yet, and those of them that are added up here.
  std::size_t missing_ = 0;
  std::size_t to_add_ = 0;
};

} // namespace troupe
