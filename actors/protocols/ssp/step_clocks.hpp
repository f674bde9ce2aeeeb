#pragma once

#include "actors/parameter_server/read_gate.hpp"

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Counts the steps of each worker for one shard of SSP, and decides which workers may continue (Ho
/// et al. 2013, "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server").
///
/// With bound s, a worker may read weights for step c (counted from 0) once all other workers have
/// committed their steps before c - s. The weights then contain all updates of these steps, and
/// perhaps newer ones. With s = 0, they contain all updates of the steps before c and no update of
/// step c. This version is kept for workers that read it later.
///
/// A worker *counts* from its first pull until it pauses, leaves or is lost. Other workers wait
/// for a worker only while it counts. A worker that continues after a pause takes the step of the
/// slowest worker, or its own step if that is later. Shard 0 decides this step and is asked before
/// the other shards, so a worker has the same step on all shards. Therefore, workers that wait at
/// different shards cannot wait for each other.
///
/// With pull_ahead n, a worker in step c asks for the weights of step c + n. It gets them once all
/// other workers are at most s - n steps behind step c. So these weights contain all updates of the
/// steps before (c + n) - s, as without pull_ahead.
///
/// A repeated pull or commit does no harm, even if it is old and arrives late.
class step_clocks : public read_gate {
public:
  /// @param ahead pull_ahead; at most `bound`
  explicit step_clocks(std::uint64_t bound, std::uint64_t ahead = 0)
    : bound_(bound), ahead_(ahead) {}

  void open(std::shared_ptr<const version_pool> versions) override;
  answer read(const proto::Pull& x) override;

  /// An error text if the gradient exceeds the bound; otherwise nothing.
  std::optional<std::string> refusal(const proto::Commit& x) const;

  /// Records that the worker's gradient was applied or left out. The resulting version must already
  /// be published.
  void committed(const proto::Commit& x);

  /// Records that the worker of this gradient has nothing to train now. The gradient is the
  /// worker's newest one.
  void paused(const proto::Commit& x);

  /// Records that this worker will send no more messages.
  void forget(std::uint32_t worker);

  /// The step of the slowest worker, among the workers that count (see step_clocks: others wait for
  /// them). If no worker counts, the highest step of any worker so far.
  std::uint64_t slowest() const;

  /// The workers whose pulls had to wait, and that need not wait any more. Each call returns only
  /// the workers that have become free since the call before.
  std::vector<std::uint32_t> take_admitted();

private:
  struct entry {
    /// Number of committed steps. If `counts` is true, this is also the worker's current step.
    std::uint64_t clock = 0;
    bool counts = false;
    /// The step at which the worker paused last; nothing if it has not paused.
    std::optional<std::uint64_t> paused_at = std::nullopt;
    bool gone = false;
    /// The smallest step whose pull must wait; nothing if no pull waits.
    std::optional<std::uint64_t> waits_at = std::nullopt;
  };

  /// Updates the worker's step from a pull. Returns false if the pull is an old repetition.
  bool place(entry& who, const proto::Pull& x);
  std::uint64_t find_slowest() const;
  void advance();
  version_pool::snapshot version_for(std::uint64_t clock);

  /// The largest number of steps by which a worker may be ahead of the slowest worker when it
  /// pulls.
  std::uint64_t readers_bound() const noexcept { return bound_ - ahead_; }

  const std::uint64_t bound_;
  const std::uint64_t ahead_;
  mutable std::mutex mutex_;
  std::shared_ptr<const version_pool> versions_;
  std::map<std::uint32_t, entry> workers_;
  std::uint64_t slowest_ = 0;
  std::uint64_t fastest_ = 0;
  /// Only with bound 0: for each of the last two steps, the version that was the newest when the
  /// slowest worker reached the step. Two steps are needed, because a worker that starts may be one
  /// step behind the newest step of this shard.
  std::map<std::uint64_t, version_pool::snapshot> reached_;
  std::vector<std::uint32_t> admitted_;
};

} // namespace troupe
