#pragma once

#include "actors/output/run_report.hpp"
#include "apps/troupe/progress_view.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace troupe {

/// The console ends after it has shown everything that was sent to it before this message.
struct close_console {};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::close_console)

namespace troupe {

using console_actor = run_observer::extend<rpc<void, close_console>>;

/// Shows a run to a person. On a terminal, it redraws a progress bar and a line per task in place.
/// If the output is not a terminal, it prints at most one progress line per second. In both cases,
/// it prints a line per epoch, and a table at the end. Results go to standard output, notices to
/// the log. Writes may block, so this actor needs its own thread.
///
/// The cursor stays at the beginning of the line below the bar and is never hidden. So the terminal
/// is usable after the process ends in any way.
class console : public console_actor::base {
public:
  using super = console_actor::base;

  /// @param training set to true when the run reports its first progress
  console(caf::actor_config& cfg, std::atomic<bool>* training);

  const char* name() const override { return "troupe.console"; }

protected:
  behavior_type make_behavior() override;

private:
  void on_progress(const run_progress& x);
  void on_epoch(const epoch_report& x);
  void on_summary(const run_summary& x);
  void on_notice(const run_notice& x);

  void measure();
  /// The terminal sequence that moves the cursor to the beginning of the bar.
  std::string back_to_top() const;
  void erase();
  /// Writes `text`, which consists of whole lines, above the bar.
  void print(const std::string& text);
  void draw(const std::string& above);

  std::atomic<bool>* training_;
  /// True if standard output is a terminal that can redraw lines.
  bool terminal_;
  terminal_style style_;
  std::size_t columns_ = 80;
  progress_view view_;
  /// The lines that are on the terminal now (the bar and the tasks): the width of each, in columns.
  std::vector<std::size_t> drawn_;
  std::chrono::steady_clock::time_point last_line_;
};

} // namespace troupe
