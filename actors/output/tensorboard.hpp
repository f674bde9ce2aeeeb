#pragma once

#include "actors/output/run_report.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace troupe {

/// A TFRecord: length, masked CRC-32C of the length, data, masked CRC-32C of the data.
std::string tf_record(std::string_view data);

/// The contents of a TensorBoard event file. Each report of a run appends bytes to it. A step is
/// the number of samples trained since the run began, so that runs with different batch sizes,
/// numbers of workers or protocols can be compared. Evaluations arrive late, so they have tags of
/// their own. Therefore, the steps of each tag never decrease.
class tensorboard_log {
public:
  /// @param epoch_samples number of samples in an epoch
  explicit tensorboard_log(std::uint64_t epoch_samples) : epoch_samples_(epoch_samples) {}

  /// Call this if the run continues from a checkpoint. `step` is the step of that checkpoint.
  void begin_at(std::int64_t step) noexcept { first_ = step_ = step; }

  /// Returns the first bytes of a file. If earlier runs in the same directory wrote values for
  /// `step` or later steps, these bytes tell readers to discard those values. `time` is in seconds
  /// since 1970.
  static std::string header(double time, std::int64_t step = 0);

  /// Returns the bytes for loss, rates and staleness. For each worker, they contain its rate and
  /// the share of its time that it spent waiting since the last report.
  std::string add(const run_progress& x, double time);

  /// Returns the bytes for the training loss of the epoch, and for loss and accuracy of the
  /// evaluation.
  std::string add(const epoch_report& x, double time);

  /// Returns the bytes for the distribution of staleness since the last report of progress.
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

/// Seconds that a worker has spent waiting, for any reason.
double waiting_seconds(const task_status& x);

} // namespace troupe
