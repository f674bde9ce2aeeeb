#pragma once

#include "actors/output/run_report.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace troupe {

/// A TFRecord: length, masked CRC-32C of the length, data, masked CRC-32C of the data.
std::string tf_record(std::string_view data);

/// The contents of an event file of TensorBoard: the bytes that each report of a run appends. Steps
/// are samples trained since the run began, so that runs with other batch sizes, numbers of workers
/// and protocols can be compared. Each tag is written by one kind of report only: so the steps of a
/// tag never decrease, although evaluations come late.
class tensorboard_log {
public:
  /// @param epoch_samples how many samples an epoch has.
  explicit tensorboard_log(std::uint64_t epoch_samples) : epoch_samples_(epoch_samples) {}

  /// The run continues from this step.
  void begin_at(std::int64_t step) noexcept { first_ = step_ = step; }

  /// The beginning of a file. Times are seconds since 1970. Readers forget what earlier runs in the
  /// same directory wrote from `step` on.
  static std::string header(double time, std::int64_t step = 0);

  /// Loss, rates, staleness; per worker its rate and the share of its time spent waiting, since the
  /// last report.
  std::string add(const run_progress& x, double time);

  /// Loss of the epoch, loss and accuracy of the test.
  std::string add(const epoch_report& x, double time);

  /// The staleness that was not in a report of progress yet.
  std::string add(const run_summary& x, double time);

private:
  struct times {
    double computing = 0;
    double waiting = 0;
  };

  std::uint64_t epoch_samples_;
  std::int64_t first_ = 0;
  std::int64_t step_ = 0;
  staleness_counts staleness_{};
  std::map<task_name, times> spent_;
};

/// Seconds that a worker has waited, for any reason.
double waiting_seconds(const task_status& x);

} // namespace troupe
