#pragma once

#include "actors/parameter_server/shard_policy.hpp"
#include "actors/parameter_server/step_aggregator.hpp"
#include "messages/proto/job.pb.h"

#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace troupe {

/// The policy of SYNC_PS. It adds up a step's gradients in order of rank, and makes one update once
/// each worker has committed its gradient. A quarantined gradient counts as committed but adds
/// nothing.
///
/// With b backup workers, the first n - b gradients of n workers make the update (Chen et al. 2016,
/// arXiv 1604.00981). Shard 0 chooses these gradients: those that are committed first. All later
/// gradients of the step are late. The other shards make the update when they have exactly the
/// gradients that shard 0 has chosen, so all shards apply the same gradients. A step does not wait
/// for idle workers.
///
/// If a worker is lost, shard 0 takes its gradient out of the step, unless the step already has
/// enough gradients. The other shards then learn whether the gradient is still part of the step
/// (settle()). If it is, but a shard has not received it, that shard makes the update without it.
class sync_policy : public shard_policy {
public:
  /// `workers`: the indices of the workers, in order of rank. `whole_sums`: true if planned updates
  /// must contain the complete sum of the gradients, because others also read it or because the
  /// updater cannot add. If false, the updater may make the last addition
  /// (range_updater::terms::addend).
  sync_policy(range where, std::size_t shard, std::vector<std::uint32_t> workers,
              const proto::SyncPs& how = {}, bool whole_sums = false);

  bool in_step() const noexcept override { return true; }
  std::optional<std::string> refusal(const proto::Commit& x, std::uint64_t version) const override;
  std::optional<proto::Outcome> late(const proto::Commit& x, std::uint64_t version) const override;
  bool take(contribution x) override;
  bool ready() const noexcept override;
  bool chooses() const noexcept override { return how_.backup_workers() > 0; }
  void choose(std::uint64_t step, std::vector<proto::GradientId> parts) override;
  void restored(std::span<const float>, std::uint64_t, std::uint64_t updates) override {
    step_ = updates;
  }
  bool withdraw(std::uint32_t worker) override;
  void settle(std::uint32_t worker, std::uint64_t sequence) override;
  void set_idle(std::vector<std::uint32_t> workers) override;
  std::span<const contribution> parts() const noexcept override { return parts_; }
  planned_update plan(std::span<const float> weights, std::uint64_t version) override;
  void made(std::span<const float> before, std::span<const float> after,
            const proto::Pushed& decided) override;

private:
  bool here(const proto::GradientId& x) const;
  std::size_t rank_of(std::uint32_t worker) const;
  /// Takes out this worker's gradients with larger sequence numbers. Returns true if there were
  /// any.
  bool take_out(std::uint32_t worker, std::uint64_t sequence);
  void choose_present(std::vector<proto::GradientId>& parts) const;
  void close_if_enough();

  std::size_t shard_;
  std::vector<std::uint32_t> workers_;
  proto::SyncPs how_;
  bool whole_sums_;
  step_aggregator sum_;
  std::vector<contribution> parts_;
  /// On shard 0 with backup workers: the idle workers.
  std::vector<std::uint32_t> idle_;
  /// On shard 0 with backup workers: true if the step has all its gradients.
  bool closed_ = false;
  /// The lost workers.
  std::set<std::uint32_t> lost_;
  /// The number of the next step.
  std::uint64_t step_ = 0;
  /// With backup workers, on all shards except 0: the gradients that shard 0 has chosen for this
  /// step and later steps.
  std::map<std::uint64_t, std::vector<proto::GradientId>> chosen_;
};

} // namespace troupe
