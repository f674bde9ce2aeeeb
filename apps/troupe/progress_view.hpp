#pragma once

#include "actors/output/run_report.hpp"

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// What a terminal can show.
struct terminal_style {
  /// In characters and lines.
  std::size_t width = 80;
  std::size_t height = 24;
  bool colour = false;
  /// Characters beyond ASCII.
  bool unicode = false;
};

/// Of the environment: NO_COLOR, TERM, and the locale. Sizes are left as they are.
/// @param variable the value of an environment variable, or null.
terminal_style style_of_environment(const char* (*variable)(const char* name));

/// A run under way as text. It remembers what single reports do not tell: the last accuracy, and
/// how fast shards were of late.
class progress_view {
public:
  void add(const run_progress& x);
  void add(const epoch_report& x);

  bool empty() const noexcept { return !now_; }

  /// For a terminal: a bar, and below it a line per task; no line is wider than the terminal, and
  /// all together are at most its height - 1.
  std::vector<std::string> lines(const terminal_style& style) const;

  /// For a log: all on one line.
  std::string line() const;

private:
  struct task_rate {
    double seconds = 0;
    std::uint64_t steps = 0;
    double per_second = 0;
    /// Over a while of its own, not since training began.
    bool measured = false;
  };

  struct figure {
    std::string text;
    /// Those of least rank are left out first where there is no room.
    int rank;
  };

  std::vector<figure> figures() const;
  std::string head(const terminal_style& style) const;
  std::vector<std::string> task_lines(const terminal_style& style, std::size_t room) const;
  double done() const;
  std::optional<double> seconds_left() const;

  std::optional<run_progress> now_;
  std::optional<double> accuracy_;
  std::map<task_name, task_rate> rates_;
  /// The first report, against which the time left is told.
  double first_seconds_ = 0;
  double first_samples_ = 0;
};

/// A line about an epoch.
std::string format_epoch(const epoch_report& x);

/// The table at the end of a run.
std::string format_summary(const run_summary& x);

} // namespace troupe
