#pragma once

#include "actors/output/recorder.hpp"
#include "actors/output/run_report.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <variant>

namespace troupe {

/// Records that wait for the disk. Bounded: when it is full, it drops lines of progress first, then
/// the oldest notices, then the oldest reports. Of weights, which replace each other on the disk,
/// it keeps only the newest.
class record_queue {
public:
  using item = std::variant<run_progress, run_notice, epoch_report, record_weights>;

  explicit record_queue(std::size_t most = 256) : most_(most) {}

  void push(item x);

  /// The oldest; nothing if it is empty.
  std::optional<item> pop();

  std::size_t size() const noexcept { return items_.size(); }

  /// Notices and reports that were dropped.
  std::uint64_t left_out() const noexcept { return left_out_; }

private:
  template <class T>
  bool remove_oldest();

  std::size_t most_;
  std::deque<item> items_;
  std::uint64_t left_out_ = 0;
};

} // namespace troupe
