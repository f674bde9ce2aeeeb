#pragma once

#include "messages/names.hpp"
#include "messages/proto/wire.pb.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace troupe {

/// What a task does right now, and how long it has done what. Written by the actors that do it, a
/// few times per step; read by the one that tells the coordinator, so that a task that is stuck can
/// still be heard of. Thread-safe.
class activity_board {
public:
  using time_point = std::chrono::steady_clock::time_point;
  using doing = proto::TaskStatus::Doing;

  /// From `now` on, the task does this; nothing changes if it does so already.
  void enter(doing what, time_point now);

  /// Somebody the task waits for, or will when it enters a state of waiting for others; once, until
  /// `arrived`.
  void await(const task_name& other);
  void arrived(const task_name& other);

  /// A gradient was decided (worker), or an update made (shard).
  void count_step(time_point now);

  /// Ring: pieces sent to the right neighbour, and received from the left one.
  void count_sent(std::uint64_t pieces);
  void count_received();

  /// Payloads to and from other tasks.
  void count_bytes_sent(std::uint64_t bytes);
  void count_bytes_received(std::uint64_t bytes);

  /// What an asynchronous shard knows of all gradients.
  void set_pacing(const proto::Pacing& x);

  /// Seconds spent so far, what is under way included.
  double seconds_in(doing what, time_point now) const;

  /// The report to the coordinator, without view and name.
  proto::TaskStatus status(time_point now) const;

private:
  mutable std::mutex mutex_;
  doing doing_ = proto::TaskStatus::DOING_UNSET;
  time_point since_;
  std::array<std::chrono::nanoseconds, proto::TaskStatus::Doing_ARRAYSIZE> spent_{};
  std::vector<task_name> awaited_;
  std::uint64_t steps_ = 0;
  time_point last_step_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t bytes_sent_ = 0;
  std::uint64_t bytes_received_ = 0;
  std::optional<proto::Pacing> pacing_;
};

/// "waits for weights from ps/1", "computes".
std::string describe(const proto::TaskStatus& x);

/// "a", "a and b", "a, b and c"; shortened where there are many.
std::string enumerate(const std::vector<task_name>& tasks);

} // namespace troupe
