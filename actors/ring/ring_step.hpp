#pragma once

#include "actors/model/job_context.hpp"
#include "actors/replica/replica_store.hpp"
#include "actors/ring/ring_reductions.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

/// How a step of a ring ended. Equal on all ranks.
struct ring_outcome {
  /// Samples of the update, and of gradients that were left out.
  std::uint64_t samples = 0;
  std::uint64_t left_out = 0;
  /// By rank: its gradient was left out.
  std::vector<bool> quarantined;
  /// Where the job clips by norm: of the mean gradient of the update, before it was clipped.
  std::optional<double> gradient_norm;
};

/// The steps of one rank of a ring. Plain state, without actors: it is fed with the worker's
/// gradients and with reduced buckets, tells which buckets to reduce, and stages the update of each
/// bucket in a replica as its sum comes.
///
/// A gradient that is not finite shows in the sums, on all ranks alike, since they have the same
/// bits. Then the staged updates are discarded, and the buckets are reduced once more: ranks whose
/// gradient is not finite contribute nothing, the others what they still hold. A second sum that is
/// not finite either (finite gradients may add up to infinity) leaves out all gradients of the
/// step.
///
/// Where the collectives are in halves (ring_place), the replica holds the optimizer's state of
/// this rank's segment of each bucket alone (ZeRO stage 1; Rajbhandari et al. 2020, arXiv
/// 1910.02054). The sum of that segment comes first; its new weights are staged, and handed round.
/// If the sum is not finite, NaN is handed round in their place: so all ranks see it. New weights
/// that are not finite are treated alike. Updates are element by element, so the bits are those of
/// the whole.
///
/// The replica is published by the caller.
class ring_step {
public:
  ring_step(std::shared_ptr<const job_context> context, replica_store& replica,
            const ring_place& place);

  /// Begins a step; the last one has an outcome. Steps count from 0 in each run.
  void begin(std::uint64_t step);

  /// The worker's gradient of a bucket, with `where.size()` values. Appends what to reduce. A range
  /// that is no bucket, or was contributed already, is ignored.
  void contribute(range where, std::uint64_t samples, payload gradient,
                  std::vector<ring_contribution>& start);

  /// The worker's computation is done. Where the loss is not finite, some bucket must not be
  /// either: other ranks see the sums alone.
  /// @return false where readers hold all versions of a bucket
  [[nodiscard]] bool commit(bool finite, std::vector<ring_contribution>& start);

  /// A reduced bucket. Results that are not of the attempt under way are ignored.
  /// @return as commit()
  [[nodiscard]] bool reduced(const reduction& x, std::vector<ring_contribution>& start);

  /// Once all is reduced and committed: the replica is staged.
  const std::optional<ring_outcome>& outcome() const noexcept { return outcome_; }

private:
  struct bucket_state {
    std::optional<payload> own;
    bool reduced = false;
    /// Where the job clips by norm: the sum, which waits for the norm, and its part of it.
    payload sum;
    double squares = 0;
  };

  /// The collective that says which ranks were left out.
  std::uint32_t left_out_number() const;
  bool take(const reduction& x);
  bool take_part(const reduction& x, std::vector<ring_contribution>& start);
  bool advance(std::vector<ring_contribution>& start);
  void retry(std::vector<ring_contribution>& start);
  bool decide();
  bool stage_clipped(double norm);
  bool stage_nothing();

  std::shared_ptr<const job_context> context_;
  replica_store& replica_;
  ring_place place_;
  std::uint64_t step_ = 0;
  std::uint32_t attempt_ = 0;
  std::vector<bucket_state> buckets_;
  std::uint64_t own_samples_ = 0;
  bool committed_ = false;
  bool own_finite_ = true;
  /// All sums of the attempt so far are finite.
  bool finite_ = true;
  std::uint64_t samples_ = 0;
  /// Of the first attempt.
  std::uint64_t all_samples_ = 0;
  /// The second attempt: which ranks were left out, and their samples.
  std::optional<reduction> left_out_;
  std::optional<ring_outcome> outcome_;
};

} // namespace troupe
