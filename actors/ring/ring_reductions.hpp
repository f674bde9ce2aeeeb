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
  /// 0; or 1 for the second reduction of a step's buckets, which leaves out gradients with NaN or
  /// infinity.
  std::uint32_t attempt = 0;
  std::uint32_t bucket = 0;

  friend auto operator<=>(const reduction_id&, const reduction_id&) = default;
};

/// A rank's own part in a collective.
struct ring_contribution {
  reduction_id id;
  std::uint64_t samples = 0;
  /// Summed over the samples. float32, or float64 for sums over the workers' batches. Held until
  /// the collective ends.
  payload values;
};

/// The result of a collective, with the same bits on all ranks.
struct reduction {
  reduction_id id;
  std::uint64_t samples = 0;
  payload sum;
  /// If not empty, the result is sum + addend (ring_place::adds_later).
  payload addend = {};
};

/// All current collectives of one rank. This is a plain object, not an actor. Its owner uses it
/// like a ring_collective.
///
/// A step has one collective per bucket, or two, with the numbers i and `buckets` + i for bucket i:
/// - If collectives run in halves (ring_place::in_halves), i is the reduce-scatter and `buckets` +
/// i the all-gather.
/// - On GPUs (ring_place::on_gpus), the collectives have no elements. Their results mean that all
/// ranks have computed their gradients (i), and have added up their segments (`buckets` + i).
///
/// If a sum is not finite, a second attempt repeats the collectives of the step's buckets. It also
/// has a collective with the next number and one element per rank, which shows the ranks that were
/// left out. In some steps, a collective with the number after it compares the replicas
/// (ring_place::checked). The sums over the workers' batches, in float64, have the numbers after
/// the comparison. The comparison and these sums belong to the first attempt.
///
/// A rank starts an attempt or a step only when all its earlier collectives have ended. So the left
/// neighbour is at most one step ahead, and pieces of earlier steps are repetitions. Memory is
/// bounded by the collectives of two steps.
class ring_reductions {
public:
  /// A piece to send to the right neighbour.
  struct outgoing {
    reduction_id id;
    ring_piece piece;
  };

  /// What a call leads to: the pieces to send, and the result of a collective that has ended.
  struct effects {
    std::vector<outgoing> send;
    std::optional<reduction> done;
  };

  /// @param sizes number of elements in each bucket
  /// @param sums elements of each sum over the workers' batches of a step
  ring_reductions(const ring_place& place, std::vector<std::size_t> sizes,
                  const std::vector<std::size_t>& sums = {});

  /// Starts a collective. Call it once for each collective, in order of (step, attempt).
  void contribute(ring_contribution own, effects& result);

  /// Takes a piece from the left neighbour.
  piece_fate receive(const reduction_id& id, ring_piece piece, effects& result);

  std::size_t ranks() const noexcept { return place_.ranks; }

  /// The number of the collective that makes the first sum over the workers' batches.
  std::uint32_t first_sum() const noexcept { return left_out_ + 2; }

  /// Number of pieces that arrived again and were ignored.
  std::uint64_t repeated() const noexcept { return repeated_; }

private:
  ring_collective& collective(const reduction_id& id);
  bool exists(const reduction_id& id) const noexcept;
  void enter(std::uint64_t step);
  void collect(const reduction_id& id, std::vector<ring_piece> pieces, effects& result);

  ring_place place_;
  /// Number of elements of each collective, by its number.
  std::vector<std::size_t> sizes_;
  /// The number of the collective that shows the ranks that were left out.
  std::uint32_t left_out_ = 0;
  /// The newest step to which this rank has contributed, and the finished collectives of this step.
  std::uint64_t step_ = 0;
  std::set<reduction_id> done_;
  std::map<reduction_id, ring_collective> open_;
  std::uint64_t repeated_ = 0;
};

} // namespace troupe
