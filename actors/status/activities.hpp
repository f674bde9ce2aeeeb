#pragma once

#include "messages/names.hpp"
#include "messages/proto/wire.pb.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace troupe {

/// A stretch of time in which a task did one thing, or in which gradients or weights were in
/// transit.
struct activity {
  using time_point = std::chrono::steady_clock::time_point;

  time_point begin;
  time_point end;
  /// DOING_UNSET for gradients or weights in transit.
  proto::TaskStatus::Doing doing = proto::TaskStatus::DOING_UNSET;
  /// The number of steps of the task before this activity: TaskStatus.steps.
  std::uint64_t step = 0;
  /// The task whose message arrived last during this activity. If the activity is a wait for
  /// several tasks, this is the last of them to answer.
  std::optional<task_name> arrived = std::nullopt;

  bool operator==(const activity&) const = default;
};

/// The name of an activity in reports: "waiting for weights".
std::string_view activity_name(proto::TaskStatus::Doing x);

/// The newest activities of a task, at most `most`. If there are more, the oldest ones are
/// forgotten.
class recent_activities {
public:
  static constexpr std::size_t most = 1024;

  /// Activities of less than a microsecond are left out.
  static constexpr std::chrono::microseconds shortest{1};

  /// Adds an activity that ends after all others. If it begins before the end of the last one, it
  /// is shortened, or left out if nothing remains.
  void add(activity x);

  /// The activities after the first `seen` ones that are still kept, oldest first.
  std::vector<activity> after(std::uint64_t seen) const;

  /// Number of activities that were added so far.
  std::uint64_t count() const noexcept { return count_; }

private:
  /// Activity i is at index i % most.
  std::vector<activity> ring_;
  std::uint64_t count_ = 0;
  activity::time_point end_;
};

/// Writes activities into a message. They must be in order and must not overlap.
proto::Activities encode(std::span<const activity> x);

/// Reads activities from a message for which problem_of() is empty. `ahead` is how much the clock
/// of the receiver is ahead of that of the sender. The times of the result are on the clock of the
/// receiver.
std::vector<activity> decode(const proto::Activities& x, std::chrono::nanoseconds ahead);

} // namespace troupe
