#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

namespace troupe {

/// Counts the bytes of large payloads that move over a link, in both directions. Small messages do
/// not count, because a process that hangs may still send them. Thread-safe.
class payload_meter {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// @param all also counts everything; may be null
  explicit payload_meter(std::shared_ptr<payload_meter> all = nullptr) : all_(std::move(all)) {}

  void count(std::uint64_t bytes, time_point now) noexcept {
    bytes_ += bytes;
    moved_ = now;
    if (all_)
      all_->count(bytes, now);
  }

  /// A payload moves elsewhere, and messages on this link may wait for it.
  void touch(time_point now) noexcept { moved_ = now; }

  std::uint64_t bytes() const noexcept { return bytes_; }

  /// The last time at which bytes of a payload moved. If none have moved: the beginning of the
  /// clock.
  time_point moved() const noexcept { return moved_; }

  /// True if bytes of a payload have moved within the last seconds.
  bool moves(time_point now) const noexcept { return now - moved() < still_after; }

  /// If no byte moves for longer than this, a transfer counts as interrupted. A slow connection
  /// that several transfers share may pause for some seconds.
  static constexpr std::chrono::seconds still_after{5};

private:
  std::shared_ptr<payload_meter> all_;
  std::atomic<std::uint64_t> bytes_ = 0;
  std::atomic<time_point> moved_ = time_point{};
};

} // namespace troupe
