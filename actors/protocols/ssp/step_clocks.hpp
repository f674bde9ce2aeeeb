#pragma once

#include "actors/parameter_server/read_gate.hpp"

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// SSP: one shard's view of how many steps each worker has made and which workers may continue (Ho
/// et al. 2013, "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server").
///
/// With bound s, a worker reads weights for step c (counted from 0) once all other workers have
/// committed their steps before c - s. It then has all their updates of these steps, and perhaps
/// newer ones. With s = 0 it has all updates of the steps before c and none of step c: that version
/// is kept for workers that read it later.
///
/// A worker counts from its first pull. It no longer counts when it has paused, has left or was
/// lost. When it continues, it takes the step of the slowest worker, or its own if that is later.
/// Shard 0 decides which step and is asked before the others, so a worker has the same step on all
/// shards. Therefore waits at several shards cannot form a circle.
///
/// With pull_ahead n, a worker asks in step c for the weights of step c + n. It waits until no
/// other worker is more than s - n steps behind step c. So these weights, too, have all updates of
/// the steps before c + n - s.
///
/// Repeating a pull or a commit is safe, also if the repetition is old and comes late.
class step_clocks : public read_gate {
public:
  /// @param ahead pull_ahead; at most `bound`
  explicit step_clocks(std::uint64_t bound, std::uint64_t ahead = 0)
    : bound_(bound), ahead_(ahead) {}

  void open(std::shared_ptr<const version_pool> versions) override;
  answer read(const proto::Pull& x) override;

  /// The reason why a gradient breaks the bound, if it does.
  std::optional<std::string> refusal(const proto::Commit& x) const;

  /// The worker's gradient was applied or left out, and its version is published.
  void committed(const proto::Commit& x);

  /// The worker of this gradient, its last one so far, has nothing to train now.
  void paused(const proto::Commit& x);

  /// No more messages of this worker will come.
  void forget(std::uint32_t worker);

  /// The step of the slowest worker that counts. If none counts: the highest step of any worker so
  /// far.
  std::uint64_t slowest() const;

  /// Workers whose waiting pulls can be answered since the last call.
  std::vector<std::uint32_t> take_admitted();

private:
  struct entry {
    /// Number of committed steps; while the worker counts, this is its current step.
    std::uint64_t clock = 0;
    bool counts = false;
    /// The step of its last pause.
    std::optional<std::uint64_t> paused_at = std::nullopt;
    bool gone = false;
    /// The step of the earliest pull that waits.
    std::optional<std::uint64_t> waits_at = std::nullopt;
  };

  /// False: an old repetition.
  bool place(entry& who, const proto::Pull& x);
  std::uint64_t find_slowest() const;
  void advance();
  version_pool::snapshot version_for(std::uint64_t clock);

  /// A worker that reads is at most so many steps ahead of the slowest.
  std::uint64_t readers_bound() const noexcept { return bound_ - ahead_; }

  const std::uint64_t bound_;
  const std::uint64_t ahead_;
  mutable std::mutex mutex_;
  std::shared_ptr<const version_pool> versions_;
  std::map<std::uint32_t, entry> workers_;
  std::uint64_t slowest_ = 0;
  std::uint64_t fastest_ = 0;
  /// Bound 0: the version at the moment when the slowest worker reached a step, for the last two
  /// steps: a worker that begins may be one step behind what this shard knows.
  std::map<std::uint64_t, version_pool::snapshot> reached_;
  std::vector<std::uint32_t> admitted_;
};

} // namespace troupe
