#pragma once

#include "actors/parameter_server/read_gate.hpp"

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// SSP: how many steps each worker has made, and who may go on, as one shard sees it (Ho et al.
/// 2013, "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server").
///
/// A worker reads weights for step c (counted from 0) once all other workers have committed their
/// steps before c - s, with s the bound: it then has all their updates of these steps, and perhaps
/// newer ones. With s = 0 it has all updates of the steps before c, and none of step c: the version
/// of that moment is kept for those who read it later.
///
/// A worker counts from its first pull on. It does not count any more when it has paused, has left
/// or was lost; if it goes on, it does so at the step of the slowest, or at its own where that is
/// later. Shard 0 says which step that is, and is asked before the others, so that a worker is at
/// the same step everywhere: what waits at one shard cannot wait in a circle.
///
/// Repeating a pull or a commit is safe, as is an old repetition that comes late.
class step_clocks : public read_gate {
public:
  explicit step_clocks(std::uint64_t bound) : bound_(bound) {}

  void open(std::shared_ptr<const version_pool> versions) override;
  answer read(const proto::Pull& x) override;

  /// Why a gradient breaks the bound, if it does.
  std::optional<std::string> refusal(const proto::Commit& x) const;

  /// The worker's gradient was applied or left out, and the version with it is published.
  void committed(const proto::Commit& x);

  /// The worker, whose last gradient this was, has nothing to train now.
  void paused(const proto::Commit& x);

  /// Nothing comes from this worker any more.
  void forget(std::uint32_t worker);

  /// The step of the slowest worker that counts; of the fastest ever where none counts.
  std::uint64_t slowest() const;

  /// Workers whose pulls waited and need not wait any more, since the last call.
  std::vector<std::uint32_t> take_admitted();

private:
  struct entry {
    /// Steps committed; where it counts, the step that it makes.
    std::uint64_t clock = 0;
    bool counts = false;
    /// Where it paused last.
    std::optional<std::uint64_t> paused_at = std::nullopt;
    bool gone = false;
    bool waits = false;
  };

  /// False: an old repetition.
  bool place(entry& who, const proto::Pull& x);
  std::uint64_t find_slowest() const;
  void advance();
  version_pool::snapshot version_for(std::uint64_t clock);

  const std::uint64_t bound_;
  mutable std::mutex mutex_;
  std::shared_ptr<const version_pool> versions_;
  std::map<std::uint32_t, entry> workers_;
  std::uint64_t slowest_ = 0;
  std::uint64_t fastest_ = 0;
  /// Bound 0: the versions of the moments when the slowest reached a step. The last two: a worker
  /// that begins may be a step behind what this shard knows.
  std::map<std::uint64_t, version_pool::snapshot> reached_;
  std::vector<std::uint32_t> admitted_;
};

} // namespace troupe
