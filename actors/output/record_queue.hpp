#pragma once

#include "actors/output/recorder.hpp"
#include "actors/output/run_report.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <variant>

namespace troupe {

/// A queue of records that wait for the disk, of limited size. If it is full, it drops the oldest
/// progress record. If it has none, it drops the oldest notice, and otherwise the oldest epoch
/// report. It keeps only the newest weights of each file, because newer weights replace older ones.
class record_queue {
public:
  using item = std::variant<run_progress, run_notice, epoch_report, record_weights>;

  /// @param most number of records. They are small, and a run can have thousands of short epochs.
  explicit record_queue(std::size_t most = 16384) : most_(most) {}

  void push(item x);

  /// Removes and returns the oldest record; nothing if the queue is empty.
  std::optional<item> pop();

  std::size_t size() const noexcept { return items_.size(); }

  /// Number of notices and epoch reports that were dropped.
  std::uint64_t left_out() const noexcept { return left_out_; }

private:
  template <class T>
  bool remove_oldest();
  void remove_older(const record_weights& x);

  std::size_t most_;
  std::deque<item> items_;
  std::uint64_t left_out_ = 0;
};

} // namespace troupe
