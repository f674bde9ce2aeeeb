#pragma once

#include "messages/proto/job.pb.h"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace troupe {

/// Decides at which versions of the weights a shard or ring rank captures its state. To capture
/// means to keep the state and to send it to the coordinator, for a checkpoint or an evaluation.
/// Training does not wait for a capture. If a version is due while too many captures are open, it
/// is not captured, and no checkpoint is made from it (see checkpoint_assembly).
class checkpoint_schedule {
public:
  /// Limit of open captures. An open capture is in transit to the coordinator, or has arrived there
  /// but is not evaluated or written yet. Each open capture keeps a version of the weights in
  /// memory. For a checkpoint, it also keeps a copy of the optimizer's state.
  static constexpr std::size_t most_open = 2;

  /// @param every number of updates between captures; 0 means that nothing is captured
  explicit checkpoint_schedule(std::uint64_t every) : every_(every) {}

  /// These functions return the schedule of a job's checkpoints, and of its evaluations within an
  /// epoch.
  static checkpoint_schedule of_checkpoints(const proto::Job& job) {
    return checkpoint_schedule{job.checkpoint().every_steps()};
  }
  static checkpoint_schedule of_evaluations(const proto::Job& job) {
    return checkpoint_schedule{job.evaluate().every_steps()};
  }

  /// The largest number of open captures of a job: those for checkpoints and for evaluations
  /// together.
  static std::size_t most_open_of(const proto::Job& job) {
    return (job.has_checkpoint() ? most_open : 0) + (job.has_evaluate() ? most_open : 0);
  }

  /// True if this version must be captured now.
  bool due(std::uint64_t version) const noexcept {
    return every_ > 0 && version % every_ == 0 && open_ < most_open;
  }

  /// Call this when the coordinator asks for the last version of the run. Returns true if this
  /// version must still be captured, however many captures are open.
  bool due_at_end(std::uint64_t version) noexcept {
    at_end_ = true;
    return every_ > 0 && (version != newest_ || refused_);
  }

  /// Records that this version is captured. The capture is open until ended() is called.
  void began(std::uint64_t version) noexcept {
    ++open_;
    newest_ = version;
    refused_ = false;
  }

  /// Records that the capture of this version has ended.
  /// @param kept true if the coordinator has taken all payloads of the capture
  /// @returns true, at most once, if this version must be captured again: the coordinator refused
  /// it before the coordinator knew that it is the last version of the run
  bool ended(std::uint64_t version, bool kept) noexcept {
    --open_;
    if (kept || version != newest_)
      return false;
    refused_ = true;
    return std::exchange(at_end_, false);
  }

  /// The newest captured version; 0 if there is none.
  std::uint64_t newest() const noexcept { return newest_; }

private:
  std::uint64_t every_;
  std::size_t open_ = 0;
  std::uint64_t newest_ = 0;
  /// True if the newest captured version was not kept.
  bool refused_ = false;
  /// True if the run has asked for its last version.
  bool at_end_ = false;
};

} // namespace troupe
