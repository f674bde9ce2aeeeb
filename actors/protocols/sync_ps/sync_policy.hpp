#pragma once

#include "actors/parameter_server/shard_policy.hpp"
#include "actors/parameter_server/step_aggregator.hpp"
#include "messages/proto/job.pb.h"

#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace troupe {

/// SYNC_PS: adds up a step's gradients in order of rank, and makes one update once each worker has
/// committed its gradient. A quarantined gradient counts as committed but adds nothing.
///
/// With b backup workers, the first n - b gradients of n workers make the update (Chen et al. 2016,
/// arXiv 1604.00981). Shard 0 chooses these gradients. Once a step has enough of them, any later
/// commit is late. The other shards update when they have the gradients that shard 0 names, so that
/// all shards apply the same gradients. A step does not wait for idle workers.
///
/// If a worker is lost, shard 0 takes its gradient out of the step, unless the step already has
/// enough gradients. The other shards then learn whether the gradient counts (settle()). If it
/// counts but has not reached a shard, that shard makes the update without it.
class sync_policy : public shard_policy {
public:
  /// `workers`: the indices of the workers, in order of rank. `whole_sums`: if true, planned
  /// updates never use range_updater::terms::addend, because their gradient has other readers, or
  /// because the updater would need memory for the addition.
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
  /// Takes out this worker's gradients after this sequence number.
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
  /// The next step.
  std::uint64_t step_ = 0;
  /// With backup workers, on all shards except 0: the gradients that shard 0 has chosen for this
  /// step and later steps.
  std::map<std::uint64_t, std::vector<proto::GradientId>> chosen_;
};

} // namespace troupe
