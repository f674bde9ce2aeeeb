#pragma once

#include "actors/output/run_report.hpp"

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace troupe {

/// A series of values of a run, in bounded memory. When there are more than `limit` values, this
/// class removes every second value. From then on, it keeps only half as many of the new values as
/// before. It always keeps the last value.
template <class T>
class thinned {
public:
  explicit thinned(std::size_t limit) : limit_(limit) {}

  void add(T x) {
    if (last_is_extra_)
      values_.pop_back();
    last_is_extra_ = count_++ % stride_ != 0;
    values_.push_back(std::move(x));
    if (values_.size() <= limit_ || last_is_extra_)
      return;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < values_.size(); i += 2)
      values_[kept++] = std::move(values_[i]);
    last_is_extra_ = (values_.size() - 1) % 2 != 0;
    if (last_is_extra_)
      values_[kept++] = std::move(values_.back());
    values_.resize(kept);
    stride_ *= 2;
  }

  const std::vector<T>& values() const noexcept { return values_; }

private:
  std::size_t limit_;
  std::size_t stride_ = 1;
  std::size_t count_ = 0;
  bool last_is_extra_ = false;
  std::vector<T> values_;
};

/// A point on the curves of a run.
struct progress_point {
  double seconds = 0;
  /// Epochs trained so far; 1.5 in the middle of the second epoch.
  double epochs = 0;
  double train_loss = 0;
  double samples_per_second = 0;
};

/// A notice and its time, in seconds since the coordinator began.
struct dated_notice {
  double seconds = 0;
  std::string text;
};

/// The history of a run for its report. Its size is bounded, however long the run is.
class run_history {
public:
  void add(const run_progress& x);
  void add(const epoch_report& x) { (x.step > 0 ? steps_ : epochs_).add(x); }
  void add(dated_notice x);

  const std::vector<progress_point>& progress() const noexcept { return progress_.values(); }
  const std::vector<epoch_report>& epochs() const noexcept { return epochs_.values(); }
  /// Evaluations within epochs.
  const std::vector<epoch_report>& steps() const noexcept { return steps_.values(); }
  /// All evaluations, at the ends of epochs and within epochs, in order.
  std::vector<epoch_report> evaluations() const;
  const std::vector<dated_notice>& notices() const noexcept { return notices_; }
  /// Number of notices that were not kept. Only the first few hundred are kept.
  std::size_t notices_left_out() const noexcept { return notices_left_out_; }

private:
  thinned<progress_point> progress_{800};
  thinned<epoch_report> epochs_{400};
  thinned<epoch_report> steps_{800};
  std::vector<dated_notice> notices_;
  std::size_t notices_left_out_ = 0;
};

/// The host that records the run, and the time at which the run began.
struct run_origin {
  std::string host;
  std::chrono::system_clock::time_point started{};
};

/// The origin of a run that begins on this host now.
run_origin here_and_now();

} // namespace troupe
