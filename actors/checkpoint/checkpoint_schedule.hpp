#pragma once

#include "messages/proto/job.pb.h"

#include <cstddef>
#include <cstdint>

namespace troupe {

/// Decides at which versions a shard or ring rank captures its state, for a checkpoint or an
/// evaluation. Nothing waits for a capture: a version that is due while too many captures are open
/// is not captured, and so becomes no checkpoint (see checkpoint_assembly).
class checkpoint_schedule {
public:
  /// Open captures: on their way to the coordinator, or there and not yet evaluated or written.
  /// Each holds a version of the weights, and for a checkpoint a copy of the optimizer's state.
  static constexpr std::size_t most_open = 2;

  /// 0: never.
  explicit checkpoint_schedule(std::uint64_t every) : every_(every) {}

  /// The schedule of a job's checkpoints, and of its evaluations within an epoch.
  static checkpoint_schedule of_checkpoints(const proto::Job& job) {
    return checkpoint_schedule{job.checkpoint().every_steps()};
  }
  static checkpoint_schedule of_evaluations(const proto::Job& job) {
    return checkpoint_schedule{job.evaluate().every_steps()};
  }

  /// How many captures of a job may be open at once, of both kinds.
  static std::size_t most_open_of(const proto::Job& job) {
    return (job.has_checkpoint() ? most_open : 0) + (job.has_evaluate() ? most_open : 0);
  }

  /// This version must be captured now.
  bool due(std::uint64_t version) const noexcept {
    return every_ > 0 && version % every_ == 0 && open_ < most_open;
  }

  /// It is on its way, until `ended`.
  void began(std::uint64_t version) noexcept {
    ++open_;
    newest_ = version;
  }
  void ended() noexcept { --open_; }

  /// The newest version that was captured; 0 for none.
  std::uint64_t newest() const noexcept { return newest_; }

private:
  std::uint64_t every_;
  std::size_t open_ = 0;
  std::uint64_t newest_ = 0;
};

} // namespace troupe
