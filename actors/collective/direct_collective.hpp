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

/// One rank's part in one direct all-reduce (all_reduce_schedule::direct). Plain state: the owner
/// passes in pieces from the other ranks and gets the pieces to send to them. The hop of a piece is
/// its step: 1 for a rank's own elements, 2 for a sum.
///
/// The rank that owns a segment adds up a chunk after it has received this chunk from all ranks. It
/// adds in the order of ranks, not of arrival, so all ranks get the same bits in every run. It
/// reads each vector once.
///
/// This rank's payloads and received ones are held only until they are added up or copied.
class direct_collective {
public:
  /// @param own this rank's vector
  /// @param send the pieces to send are appended to it
  direct_collective(const ring_place& place, payload own, std::vector<addressed_piece>& send);

  /// Takes a piece from another rank. Appends the pieces to send to `send`.
  piece_fate receive(std::size_t from, ring_piece piece, std::vector<addressed_piece>& send);

  bool complete() const noexcept { return missing_ == 0; }

  /// The sum over ranks, once complete.
  const payload& sum() const noexcept { return sum_; }

  /// The first hop with a piece that has not arrived; 0 once complete.
  std::uint32_t awaited_hop() const noexcept;

  /// Ranks whose pieces of that hop have not arrived, in order.
  std::vector<std::size_t> awaited_ranks() const;

private:
  /// The parts of a chunk of this rank's segment, by rank; empty once they are added up.
  struct gathering {
    std::vector<payload> parts;
    /// By rank: its part has arrived. A part may have no elements.
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
  /// By index of the chunk: its sum has arrived.
  std::vector<bool> came_;
  /// Number of chunks without a sum yet; how many of them this rank adds up.
  std::size_t missing_ = 0;
  std::size_t to_add_ = 0;
};

} // namespace troupe
