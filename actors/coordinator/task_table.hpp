#pragma once

#include "actors/output/run_report.hpp"

#include <chrono>
#include <map>
#include <optional>
#include <vector>

namespace troupe {

/// Combines the reports of all tasks, for the progress of a run and its final report.
class task_table {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// Starts with these tasks. The tasks in `idle` take no part. For example, a ring does not use
  /// parameter servers.
  void begin(const std::vector<task_name>& tasks, const std::vector<task_name>& idle,
             time_point now);

  void hear(const task_name& task, const proto::TaskStatus& x, time_point now);

  /// Takes a worker's report. Messages may arrive late and out of order, so the counts never
  /// decrease.
  void hear(const task_name& task, const proto::Progress& x, time_point now);

  /// The task no longer takes part. `how` is "left" or "is gone".
  void end(const task_name& task, std::string how);

  /// The states of all tasks, in order.
  std::vector<task_status> tasks(time_point now) const;

  /// The states of all tasks, in order, at the end of training. Their rates are averages over the
  /// whole run.
  std::vector<task_status> tasks_at_end(time_point now) const;

  /// How stale the applied gradients of all workers were, as counts.
  staleness_counts staleness() const;
  double staleness_mean() const;

  /// Mean of the norms of the workers' newest gradients. Empty if no norm is known.
  std::optional<double> gradient_norm() const;

  /// Number of updates of the weights: the smallest number over all shards or ranks.
  std::uint64_t updates() const;
  /// The mean since training began.
  double updates_per_second(time_point now) const;

  /// Number of gradients that were not finite.
  std::uint64_t quarantined() const;

  struct hot_shard {
    task_name task;
    /// The bytes that the shard sends and receives: as a multiple of the mean over the other shards
    /// (infinite if the mean is zero), and per second.
    double times_others = 0;
    double bytes_per_second = 0;
  };

  /// The shard with the most bytes since training began. Empty if it has at most twice the mean of
  /// the other shards, or too few bytes to matter.
  std::optional<hot_shard> hottest_shard(time_point now) const;

  /// Shard 0's statistics over all gradients, with an asynchronous protocol. Empty if shard 0
  /// reports none.
  std::optional<pacing_status> pacing() const;

private:
  struct rate_window {
    time_point begin;
    std::uint64_t steps = 0;
    std::uint64_t samples = 0;
    std::uint64_t bytes_sent = 0;
    std::uint64_t bytes_received = 0;
  };

  struct entry {
    bool idle = false;
    std::string ended;
    proto::TaskStatus status;
    time_point heard;
    proto::Progress progress;
    /// Rates are measured from the start of the older window. When the newer window is long enough,
    /// it becomes the older one.
    rate_window older;
    rate_window newer;

    void move_window(time_point now);
  };

  std::map<task_name, entry> entries_;
  bool shards_ = false;
  time_point began_;
};

} // namespace troupe
