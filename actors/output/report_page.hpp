#pragma once

#include "actors/output/run_history.hpp"
#include "actors/output/run_report.hpp"

#include <string>

namespace troupe {

/// Everything that a run's page shows. Texts may hold any characters.
struct report_data {
  /// The job's name; may be empty.
  std::string name;
  std::string version;
  run_origin origin;
  /// The job as it ran, as text.
  std::string job;
  std::string job_hash;
  run_history history;
  run_summary summary;
};

/// A page about a run: one file of HTML that loads nothing else, and runs no scripts. It is
/// well-formed XML, too.
std::string render_report(const report_data& x);

} // namespace troupe
