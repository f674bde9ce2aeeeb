#pragma once

#include "actors/model/job_context.hpp"
#include "actors/replica/replica_check.hpp"
#include "actors/replica/replica_store.hpp"
#include "actors/ring/ring_reductions.hpp"
#include "messages/residence.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

/// The result of a step of a ring, the same on all ranks.
struct ring_outcome {
  /// Number of samples in the update, and number of samples of gradients that were left out.
  std::uint64_t samples = 0;
  std::uint64_t left_out = 0;
  /// By rank: true if the rank's gradient was left out.
  std::vector<bool> quarantined;
  /// The norm of the update's mean gradient before clipping, if the job clips by norm.
  std::optional<double> gradient_norm;
};

/// Runs the steps of one rank of a ring. This is a plain object, not an actor. The owner passes in
/// the worker's gradients, sends the contributions that this class returns to the ring, and passes
/// in the ring's results. As soon as the sum of a bucket arrives, the bucket's update is staged in
/// the replica (replica_store::stage).
///
/// If a gradient is not finite, the sums are not finite either, and all ranks see this. They then
/// discard the staged updates and reduce the buckets a second time. A rank whose gradient is not
/// finite contributes zeros. The other ranks contribute their gradients again. If the second sum is
/// not finite either (finite gradients may add up to infinity), all gradients of the step are left
/// out.
///
/// If the collectives run in halves (ring_place), the replica holds the optimizer state of only
/// this rank's segment of each bucket (ZeRO stage 1; Rajbhandari et al. 2020, arXiv 1910.02054).
/// The sum of this segment arrives first. The rank stages the segment's new weights, and sends them
/// round the ring. If the sum is not finite, the rank sends NaN instead. All ranks check the
/// weights that they get, so all of them notice this. The update works element by element, so its
/// bits are those of an undivided update.
///
/// If the gradients stay on GPUs (replica_home::in_ring), the ranks read each other's memory. Each
/// bucket then has two collectives without elements. These only tell the ranks when they may read.
/// After the first collective, each rank adds up its segment of the bucket. After the second one,
/// each rank copies the other segments. A rank whose gradient is left out sets the gradient to 0.
///
/// The caller calls replica_store::publish() after a step.
class ring_step {
public:
  ring_step(std::shared_ptr<const job_context> context, replica_store& replica,
            const ring_place& place);

  /// Begins a step. The previous step must have an outcome. Steps count from 0 in each run.
  void begin(std::uint64_t step);

  /// Appends a contribution by which all ranks compare their newest weights, if a comparison is due
  /// at the version with which the step began (`ring.verify_every_steps`). Called once per step. It
  /// makes one pass over the weights. A difference between two replicas is overlooked with a
  /// probability of 2^-64.
  void compare(std::vector<ring_contribution>& start);

  /// The difference between the ranks' weights at the beginning of this step, if a comparison has
  /// found one. The step then has no outcome. All ranks find the same difference.
  const std::optional<replica_difference>& difference() const noexcept { return difference_; }

  /// Takes the worker's gradient of a bucket, `where.size()` values. Appends to `start` the
  /// contributions that the ring must reduce. Ignores a range that is not a bucket or was already
  /// contributed. If the gradient stays on the worker's GPU (residence), `gradient` is empty. If
  /// the gradient stays there and no other ranks exist, the bucket's update is staged at once.
  void contribute(range where, std::uint64_t samples, payload gradient,
                  std::vector<ring_contribution>& start);

  /// Records that the worker has computed its gradient.
  /// @param finite false if the loss or the gradient is not finite. At least one bucket of the
  /// gradient must then have NaN or infinity, because other ranks see only the sums
  /// @param squared_norm the squared norm of this rank's gradient. Used only if the gradient stays
  /// on the GPU and no other ranks exist
  void commit(bool finite, double squared_norm, std::vector<ring_contribution>& start);

  /// Takes the result of a collective. Ignores results of earlier attempts.
  void reduced(const reduction& x, std::vector<ring_contribution>& start);

  /// The outcome, once all buckets are reduced and the worker has committed. The whole update is
  /// then staged in the replica.
  const std::optional<ring_outcome>& outcome() const noexcept { return outcome_; }

private:
  struct bucket_state {
    std::optional<payload> own;
    bool reduced = false;
    /// If the job clips by norm: the sum, kept until the norm is known, and this bucket's part of
    /// the squared norm.
    payload sum;
    double squares = 0;
  };

  /// The number of the collective that shows which ranks were left out.
  std::uint32_t left_out_number() const;
  bool compares() const;
  bool gradients_on_gpu() const { return replica_.home().where == residence::gradients_on_gpu; }
  bool in_ring() const { return replica_.home().in_ring; }
  bool clips() const { return context_->rule.clip_norm > 0; }
  void take_turn(const reduction& x, std::vector<ring_contribution>& start);
  void take(const reduction& x);
  void take_part(const reduction& x, std::vector<ring_contribution>& start);
  void advance(std::vector<ring_contribution>& start);
  void retry(std::vector<ring_contribution>& start);
  void decide();
  void stage_clipped(double norm);
  void stage_nothing();

  std::shared_ptr<const job_context> context_;
  replica_store& replica_;
  ring_place place_;
  std::uint64_t step_ = 0;
  std::uint32_t attempt_ = 0;
  std::vector<bucket_state> buckets_;
  std::uint64_t own_samples_ = 0;
  bool committed_ = false;
  /// True while this step waits for the hashes of all ranks, by which the ranks compare their
  /// weights.
  bool comparing_ = false;
  std::optional<replica_difference> difference_;
  bool own_finite_ = true;
  /// True if all sums of this attempt so far are finite.
  bool finite_ = true;
  /// The squared norm of the sum of the gradients, as soon as it is known.
  double squares_ = 0;
  std::uint64_t samples_ = 0;
  /// Number of samples in the first attempt.
  std::uint64_t all_samples_ = 0;
  /// In the second attempt: the ranks that were left out, and the number of their samples.
  std::optional<reduction> left_out_;
  std::optional<ring_outcome> outcome_;
};

} // namespace troupe
