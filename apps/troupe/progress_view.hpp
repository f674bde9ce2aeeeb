#pragma once

#include "actors/output/run_report.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// The capabilities of a terminal.
struct terminal_style {
  /// The width in characters, and the height in lines.
  std::size_t width = 80;
  std::size_t height = 24;
  bool colour = false;
  /// True if the terminal can show characters beyond ASCII.
  bool unicode = false;
};

/// Reads NO_COLOR, TERM and the locale from the environment. Does not set the sizes.
/// @param variable returns the value of an environment variable, or null
terminal_style style_of_environment(const char* (*variable)(const char* name));

/// The progress of a run as text. It remembers values that a single report does not contain: the
/// last accuracy, and the values of the first report.
class progress_view {
public:
  void add(const run_progress& x);
  void add(const epoch_report& x);

  bool empty() const noexcept { return !now_; }

  /// For a terminal: a bar, and below it a line per task. No line is wider than the terminal. The
  /// number of lines is at most the height of the terminal minus 1.
  std::vector<std::string> lines(const terminal_style& style) const;

  /// The progress on one line, for a log.
  std::string line() const;

private:
  struct figure {
    std::string text;
    /// If there is too little room for all figures, the figures of the lowest rank are left out
    /// first.
    int rank;
  };

  std::vector<figure> figures() const;
  std::string head(const terminal_style& style) const;
  std::vector<std::string> task_lines(const terminal_style& style, std::size_t room) const;
  double done() const;
  std::optional<double> seconds_left() const;

  std::optional<run_progress> now_;
  std::optional<double> accuracy_;
  /// Values of the first progress report of this run. The remaining time is estimated from the
  /// progress since then.
  double first_seconds_ = 0;
  double first_samples_ = 0;
};

/// A line with the results of an epoch.
std::string format_epoch(const epoch_report& x);

/// The table at the end of a run.
std::string format_summary(const run_summary& x);

} // namespace troupe
