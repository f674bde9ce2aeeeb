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
  /// 1 for the second reduction of a step's buckets, which leaves out gradients with NaN or
  /// infinity.
  std::uint32_t attempt = 0;
  std::uint32_t bucket = 0;

  friend auto operator<=>(const reduction_id&, const reduction_id&) = default;
};

/// A rank's own part in a collective.
struct ring_contribution {
  reduction_id id;
  std::uint64_t samples = 0;
  /// float32, summed over the samples; held until the collective ends.
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

/// All current collectives of one rank. Plain state, used like a ring_collective.
///
/// A step has one collective per bucket. If they run in halves (ring_place), the reduce-scatter of
/// bucket i has number i and its all-gather number `buckets` + i. On GPUs, collectives i and
/// `buckets` + i of bucket i have no elements: a rank gets their results when all ranks have
/// contributed, that is, have computed their gradients, and have added up their segments. If one of
/// the sums is not finite, a second attempt repeats the collectives. It adds a collective with the
/// next number and one element per rank, which shows the ranks that were left out. In some steps,
/// the number after that is used to compare the replicas (ring_place::checked). Sums over the
/// workers' batches, in float64, have the numbers after that. Both belong to the first attempt. A
/// rank starts an attempt or a step only when all its earlier collectives have ended. So the left
/// neighbour is at most one step ahead, and pieces of earlier steps are repetitions: memory is
/// bounded by the collectives of two steps.
class ring_reductions {
public:
  /// A piece to send to the right neighbour.
  struct outgoing {
    reduction_id id;
    ring_piece piece;
  };

  /// The pieces to send and the results that an event leads to.
  struct effects {
    std::vector<outgoing> send;
    std::optional<reduction> done;
  };

  /// @param sizes number of elements in each bucket
  /// @param sums elements of each sum over the workers' batches of a step
  ring_reductions(const ring_place& place, std::vector<std::size_t> sizes,
                  const std::vector<std::size_t>& sums = {});

  /// Starts a collective. Call it once for each, in order of (step, attempt).
  void contribute(ring_contribution own, effects& result);

  /// Takes a piece from the left neighbour.
  piece_fate receive(const reduction_id& id, ring_piece piece, effects& result);

  std::size_t ranks() const noexcept { return place_.ranks; }

  /// The number of the first of `sums`.
  std::uint32_t first_sum() const noexcept { return left_out_ + 2; }

  /// Number of pieces that arrived again and were ignored.
  std::uint64_t repeated() const noexcept { return repeated_; }

private:
  ring_collective& collective(const reduction_id& id);
  bool exists(const reduction_id& id) const noexcept;
  void enter(std::uint64_t step);
  void collect(const reduction_id& id, std::vector<ring_piece> pieces, effects& result);

  ring_place place_;
  /// By number.
  std::vector<std::size_t> sizes_;
  /// The number of the collective that shows the ranks that were left out.
  std::uint32_t left_out_ = 0;
  /// The newest step to which this rank has contributed, and its finished collectives.
  std::uint64_t step_ = 0;
  std::set<reduction_id> done_;
  std::map<reduction_id, ring_collective> open_;
  std::uint64_t repeated_ = 0;
};

} // namespace troupe
