#pragma once

#include "actors/output/run_report.hpp"

#include <chrono>
#include <string>

namespace troupe {

/// Shows a run to a person: a bar on a terminal, a line a second elsewhere, a table at the end.
/// Results go to standard output, notices to the log.
class console : public run_observer::base {
public:
  using super = run_observer::base;

  explicit console(caf::actor_config& cfg);

  const char* name() const override { return "troupe.console"; }

protected:
  behavior_type make_behavior() override;

private:
  void on_progress(const run_progress& x);
  void on_epoch(const epoch_report& x);
  void on_notice(const run_notice& x);
  void clear_bar();

  bool terminal_;
  bool bar_shown_ = false;
  std::chrono::steady_clock::time_point last_line_;
};

/// The table at the end of a run.
std::string format_summary(const run_summary& x);

} // namespace troupe
