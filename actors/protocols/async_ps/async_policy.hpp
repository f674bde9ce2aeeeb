#pragma once

#include "actors/parameter_server/pulled_versions.hpp"
#include "actors/parameter_server/shard_policy.hpp"
#include "actors/protocols/async_ps/pacing.hpp"
#include "actors/protocols/async_ps/worker_moments.hpp"

#include <deque>
#include <memory>

namespace troupe {

/// Number of chains of gradients in this job. With pull_ahead n, each worker has n + 1 chains, and
/// its gradients take turns: gradient i belongs to chain i mod (n + 1). A gradient is computed from
/// weights that contain all earlier gradients of its chain, but not the last n gradients of the
/// worker. For updates, a chain is therefore like a worker without pull_ahead: it has its own
/// moment and its own slopes (slope_probe). Gradients are as stale as in a job without pull_ahead
/// and with this number of workers.
std::size_t chains_of(const proto::Job& job, std::size_t workers) noexcept;

/// How updates of this job correct for staleness. NONE if there is only one chain of gradients,
/// because its gradients are never stale.
proto::AsyncPs::Compensation compensation_of(const proto::Job& job, std::size_t workers) noexcept;

/// The policy of ASYNC_PS: each gradient makes an update, in order of arrival. No worker waits for
/// another worker.
///
/// With async_ps.buffer K, an update uses the mean of K gradients, in the order in which they
/// arrive at this shard (FedBuff, Nguyen et al. 2022, arXiv 2106.06639). A gradient counts as
/// applied as soon as it is in the buffer, but no version of the weights contains it until the
/// update. All workers share one moment. Each gradient is limited (limit_factor) and clipped by
/// norm on its own.
///
/// Corrections for staleness (proto::AsyncPs::Compensation), where g is the mean gradient, r the
/// learning rate, w the weights before the update, and w0 the weights that the worker read:
/// - AUTO: each worker has its own first moment, and steps look ahead by this moment
///   (update_arguments::look_ahead); g is limited (limit_factor), and r is damped (async_pacing).
/// - STALENESS_RATE: r / max(staleness, 1) (Zhang et al. 2015, arXiv 1511.05950).
/// - GAP_AWARE: g / (1 + |w - w0| / s). s is the running mean of the length of a step. Norms are
///   over the shard's range (Barkai et al. 2020, arXiv 1909.10802).
/// - DC: g + 2 g^2 (w - w0) / sqrt(q + 1e-7). q is the running mean of g^2, in which a new value
///   has weight 0.05 (DC-ASGD-a, Zheng et al. 2017, arXiv 1609.08326).
class async_policy : public shard_policy {
public:
  /// `pulled`: the versions that workers last read, which GAP_AWARE and DC need. Null with other
  /// corrections.
  async_policy(std::shared_ptr<const job_context> context, range where, std::size_t shard,
               std::size_t workers, std::shared_ptr<pulled_versions> pulled);

  bool in_step() const noexcept override { return false; }
  std::optional<std::string> refusal(const proto::Commit&, std::uint64_t) const override {
    return std::nullopt;
  }
  bool take(contribution x) override;
  bool ready() const noexcept override { return !waiting_.empty() || (all_idle_ && held_ > 0); }
  void set_idle(std::vector<std::uint32_t> workers) override {
    all_idle_ = workers.size() >= workers_;
  }
  std::span<const contribution> parts() const noexcept override;
  std::vector<proto::GradientId> undecided() const override { return ids_of(waiting_); }
  planned_update plan(std::span<const float> weights, std::uint64_t version) override;
  void made(std::span<const float> before, std::span<const float> after,
            const proto::Pushed& decided) override;

  bool keeps_moments() const noexcept override;
  payload moment(std::uint64_t updates) const override;
  void restore_moment(std::span<const float> values, std::uint64_t updates) override {
    moments_.restore(values, updates);
  }
  void forget(std::uint32_t worker, std::uint64_t incarnation) override;
  std::optional<proto::Pacing> pacing() const override;
  std::optional<proto::Damping> new_damping() override;
  void set_damping(const proto::Damping& x) override;
  std::optional<proto::PacingState> pacing_state() const override;
  bool restore_pacing(const proto::PacingState& x) override;

private:
  bool paces() const noexcept { return first_shard_ && how_ == proto::AsyncPs::AUTO; }
  double gap(const proto::Commit& x, std::span<const float> weights);
  void correct(const contribution& x, std::span<const float> weights);
  double factor_of(const proto::Commit& x) const;
  planned_update hold(const contribution& x);
  planned_update held() const;

  std::shared_ptr<const job_context> context_;
  range where_;
  std::size_t workers_;
  bool first_shard_;
  proto::AsyncPs::Compensation how_;
  std::deque<contribution> waiting_;
  worker_moments moments_;
  /// Statistics and damping of the learning rate. Only shard 0 collects them. It sends the damping
  /// to the other shards.
  async_pacing pacing_;
  /// On shard 0: the damping that this shard sent last.
  double sent_ = 0;
  /// On other shards: the number of gradients that shard 0 had applied when it sent the current
  /// damping. An older damping that arrives later is ignored.
  std::uint64_t sent_at_ = 0;
  std::shared_ptr<pulled_versions> pulled_;
  /// async_ps.buffer: the number of gradients per update. The fields below are the number of
  /// gradients in the buffer, their sum, and the number of their samples. Once all workers are
  /// idle, the gradients that are left in the buffer make the last update.
  std::uint32_t buffer_;
  std::uint32_t held_ = 0;
  std::vector<float> sum_;
  std::uint64_t sum_samples_ = 0;
  bool all_idle_ = false;
  /// GAP_AWARE: running mean of the length of a step.
  double step_length_ = 0;
  /// DC: running mean of the squares of gradients.
  std::vector<float> squares_;
  /// DC: the corrected gradient.
  std::vector<float> corrected_;
};

} // namespace troupe
