#pragma once

#include <ctime>

namespace troupe::bench {

/// The kind of time to measure: elapsed time, or the processor time of the calling thread.
/// Processor time hardly changes if other programs keep the machine busy.
enum class passing { time, processor_time };

/// Measures the seconds since its construction or since the last lap().
class stopwatch {
public:
  explicit stopwatch(passing what)
    : clock_(what == passing::time ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID), begin_(now()) {}

  double seconds() const { return now() - begin_; }
  /// Returns the seconds so far, and starts again from 0.
  double lap() {
    const double end = now();
    const double result = end - begin_;
    begin_ = end;
    return result;
  }

private:
  double now() const {
    timespec x{};
    ::clock_gettime(clock_, &x);
    return static_cast<double>(x.tv_sec) + 1e-9 * static_cast<double>(x.tv_nsec);
  }

  clockid_t clock_;
  double begin_;
};

} // namespace troupe::bench
