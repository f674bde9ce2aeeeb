#pragma once

#include "actors/output/run_timeline.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace troupe {

/// Estimates by how much this host's clock is ahead of the clock of another host, from messages of
/// that host. Each message bounds this difference: it is at most (time of arrival here) - (time of
/// sending there). The smallest bound of the last 16 to 32 seconds is the estimate. So it is too
/// large by the time that the fastest message took. Older bounds are forgotten, because clocks
/// drift.
class clock_difference {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// Adds a message that arrives `now`.
  /// @param sent the time of sending, in nanoseconds on the sender's clock
  void add(std::uint64_t sent, time_point now);

  std::chrono::nanoseconds value() const;

private:
  using bound = std::chrono::nanoseconds;

  std::optional<bound> older_;
  bound newer_ = bound::max();
  time_point newer_since_;
};

/// Collects the newest activities of all tasks of a run, on the coordinator's clock. Its size is
/// bounded, however long the run is.
class timeline {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// @param host the coordinator's host (boot_number)
  explicit timeline(std::uint64_t host) : host_(host) {}

  /// Takes a report that arrives `now`. Its problem_of() must be empty.
  void hear(const task_name& task, const proto::TaskStatus& x, time_point now);

  /// Adds a notice, or the result of an evaluation.
  void mark(std::string text, time_point now);

  /// The newest activities of all tasks, in order, and the newest marks. An activity or exchange
  /// that has not ended is the last one in its list, and lasts until the task's newest report.
  run_timeline newest() const;

private:
  struct entry {
    std::deque<activity> done;
    std::deque<activity> exchanged;
    /// The activity, and the exchange, that have not ended.
    std::optional<activity> current;
    std::optional<activity> exchange;
  };

  /// How much the coordinator's clock is ahead of the clock of the task's host.
  std::chrono::nanoseconds ahead_of(const task_name& task, const proto::TaskStatus& x,
                                    time_point now);
  void add(std::deque<activity>& to, const std::vector<activity>& news) const;

  std::uint64_t host_;
  /// By host. Tasks whose host is not known have their own entries.
  std::map<std::pair<std::uint64_t, std::optional<task_name>>, clock_difference> clocks_;
  std::map<task_name, entry> entries_;
  std::deque<timeline_mark> marks_;
};

} // namespace troupe
