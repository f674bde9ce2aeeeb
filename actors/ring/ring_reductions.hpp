#pragma once

#include "actors/ring/ring_collective.hpp"

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace troupe {

/// Identifies a collective of a ring.
struct reduction_id {
  /// Steps count from 0 in each run.
  std::uint64_t step = 0;
  /// 0 normally. 1 if the buckets of the step are reduced a second time, without the gradients that
  /// have NaN or infinity.
  std::uint32_t attempt = 0;
  std::uint32_t bucket = 0;

  friend auto operator<=>(const reduction_id&, const reduction_id&) = default;
};

/// A rank's own part in a collective.
struct ring_contribution {
  reduction_id id;
  std::uint64_t samples = 0;
  /// The vector that this rank contributes, summed over the samples. float32, or float64 for sums
  /// over the workers' batches. The ring keeps a reference to the vector until the collective ends.
  payload values;
};

/// The result of a collective, with the same bits on all ranks.
struct reduction {
  reduction_id id;
  std::uint64_t samples = 0;
  payload sum;
  /// If `addend` is not empty, the result is sum + addend (ring_place::adds_later).
  payload addend = {};
};

/// Runs all current collectives of one rank. This is a plain object, not an actor. As with a
/// ring_collective, the owner passes in pieces and sends the pieces that this class returns.
///
/// Collectives are numbered within a step. With n buckets, bucket i has one collective, number i.
/// In two cases, it has two collectives, numbers i and n + i:
/// - If collectives run in halves (ring_place::in_halves), i is the reduce-scatter and n + i the
///   all-gather.
/// - On GPUs (ring_place::on_gpus), the collectives have no elements. The end of collective i means
///   that all ranks have computed their gradients. The end of n + i means that all ranks have added
///   up their segments.
///
/// The next numbers are for other collectives, in this order:
/// - One with one element per rank shows which ranks were left out. It runs only in the second
///   attempt of a step, which repeats the collectives of the buckets if a sum is not finite.
/// - One compares the replicas (ring_place::checked), in some steps.
/// - The others are the sums over the workers' batches, in float64. Like the comparison, they run
///   only in the first attempt.
///
/// A rank starts an attempt or a step only when all its earlier collectives have ended. So the left
/// neighbour is at most one step ahead, and this object needs memory for at most two steps. Pieces
/// of earlier steps are repetitions.
class ring_reductions {
public:
  /// A piece to send to the right neighbour.
  struct outgoing {
    reduction_id id;
    ring_piece piece;
  };

  /// The consequences of a call: the pieces to send, and the result of a collective that has ended.
  struct effects {
    std::vector<outgoing> send;
    std::optional<reduction> done;
  };

  /// @param sizes number of elements in each bucket
  /// @param sums number of elements in each sum over the workers' batches of a step
  ring_reductions(const ring_place& place, std::vector<std::size_t> sizes,
                  const std::vector<std::size_t>& sums = {});

  /// Starts a collective. Call it once for each collective, in order of (step, attempt).
  void contribute(ring_contribution own, effects& result);

  /// Takes a piece from the left neighbour.
  piece_fate receive(const reduction_id& id, ring_piece piece, effects& result);

  std::size_t ranks() const noexcept { return place_.ranks; }

  /// The number of the collective that makes the first sum over the workers' batches.
  std::uint32_t first_sum() const noexcept { return left_out_ + 2; }

  /// Number of pieces that were ignored, because the same pieces had already arrived.
  std::uint64_t repeated() const noexcept { return repeated_; }

private:
  ring_collective& collective(const reduction_id& id);
  bool exists(const reduction_id& id) const noexcept;
  void enter(std::uint64_t step);
  void collect(const reduction_id& id, std::vector<ring_piece> pieces, effects& result);

  ring_place place_;
  /// Number of elements of each collective, by its number.
  std::vector<std::size_t> sizes_;
  /// The number of the collective that shows which ranks were left out.
  std::uint32_t left_out_ = 0;
  /// The newest step to which this rank has contributed, and the finished collectives of this step.
  std::uint64_t step_ = 0;
  std::set<reduction_id> done_;
  std::map<reduction_id, ring_collective> open_;
  std::uint64_t repeated_ = 0;
};

} // namespace troupe
