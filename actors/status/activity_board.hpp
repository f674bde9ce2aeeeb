#pragma once

#include "actors/payload_meter.hpp"
#include "actors/status/activities.hpp"
#include "actors/status/ring_failure.hpp"
#include "messages/names.hpp"
#include "messages/proto/wire.pb.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace troupe {

/// The current activity of a task, its newest activities, and the time spent on each activity. The
/// task's actors write it a few times per step. A separate actor (pulse) reads it and reports to
/// the coordinator, so that even a stuck task reports. Thread-safe.
class activity_board {
public:
  using time_point = std::chrono::steady_clock::time_point;
  using doing = proto::TaskStatus::Doing;

  /// @param links counts the payloads of all links of this process; may be null
  explicit activity_board(std::shared_ptr<const payload_meter> links = nullptr)
    : links_(std::move(links)) {}

  /// From `now` on, the task does `what`. No effect if the task already does this.
  void enter(doing what, time_point now);

  /// Adds a task for which this task waits, or will wait when it enters a waiting state. The other
  /// two functions remove it: arrived() if its message has arrived, forget() for another reason.
  void await(const task_name& other);
  void arrived(const task_name& other);
  void forget(const task_name& other);

  /// Sets the number of steps by which the awaited tasks are behind this task. 0 if this task does
  /// not wait for slower tasks.
  void set_behind(std::uint64_t steps);

  /// `under_way` is true if gradients or weights of this worker are in transit from `now` on.
  void exchange(bool under_way, time_point now);

  /// Counts a step. For a worker, this is a gradient that was applied or rejected. For a shard, it
  /// is an update.
  void count_step(time_point now);

  /// Counts pieces in a ring that this task has sent to its right neighbor, or received from its
  /// left neighbor.
  void count_sent(std::uint64_t pieces);
  void count_received(time_point now);

  /// The position of this task's rank in a ring. Nothing if the task has no rank.
  void set_ring(const ring_position& x);
  std::optional<ring_position> ring() const;

  /// Counts the bytes of payloads to and from other tasks.
  void count_bytes_sent(std::uint64_t bytes);
  void count_bytes_received(std::uint64_t bytes);

  /// Sets the statistics of an asynchronous shard over all gradients.
  void set_pacing(const proto::Pacing& x);

  /// Seconds spent on the activity `what` so far. If the task does this now, the time until `now`
  /// is included.
  double seconds_in(doing what, time_point now) const;

  /// Seconds of computing so far during which gradients or weights were in transit.
  double seconds_exchanging_while_computing(time_point now) const;

  /// The report to the coordinator, without the number of the view, the name of the task, and its
  /// ended activities.
  proto::TaskStatus status(time_point now) const;

  /// Numbers of activities that were already reported.
  struct reported {
    std::uint64_t done = 0;
    std::uint64_t exchanged = 0;
  };

  /// Writes the activities that have ended since the report `before` into a report: the newest of
  /// each kind (recent_activities). Returns the `before` of the next report.
  reported add_ended(proto::TaskStatus& report, const reported& before) const;

private:
  /// The time since `hidden_until_`, if the task computes while gradients or weights are in
  /// transit. Otherwise 0. `hidden_until_` is the last time at which one of these two conditions
  /// changed.
  std::chrono::nanoseconds hidden_since(time_point now) const;
  void count_hidden(time_point now);

  const std::shared_ptr<const payload_meter> links_;
  mutable std::mutex mutex_;
  doing doing_ = proto::TaskStatus::DOING_UNSET;
  time_point since_;
  /// `steps_` at the time `since_`.
  std::uint64_t steps_before_ = 0;
  std::array<std::chrono::nanoseconds, proto::TaskStatus::Doing_ARRAYSIZE> spent_{};
  /// The activities that have ended, and the stretches of time in which gradients or weights were
  /// in transit.
  recent_activities ended_;
  recent_activities exchanged_;
  bool exchanging_ = false;
  time_point exchanging_since_;
  std::uint64_t steps_before_exchange_ = 0;
  /// Total time, up to `hidden_until_`, during which this task computed while gradients or weights
  /// were in transit.
  std::chrono::nanoseconds hidden_{0};
  time_point hidden_until_;
  std::vector<task_name> awaited_;
  /// The last task for which arrived() was called in this activity.
  std::optional<task_name> arrived_;
  std::uint64_t behind_ = 0;
  std::uint64_t steps_ = 0;
  time_point last_step_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  std::optional<ring_position> ring_;
  std::uint64_t bytes_sent_ = 0;
  std::uint64_t bytes_received_ = 0;
  std::optional<proto::Pacing> pacing_;
};

/// "waits for weights from ps/1", "computes".
std::string describe(const proto::TaskStatus& x);

/// "a", "a and b", "a, b and c"; shortened if there are many.
std::string enumerate(const std::vector<task_name>& tasks);

} // namespace troupe
