#pragma once

#include "actors/output/run_history.hpp"
#include "actors/output/run_report.hpp"
#include "actors/output/run_timeline.hpp"

#include <memory>
#include <string>

namespace troupe {

/// Everything that the page of a run shows. Texts may contain any characters: render_report()
/// escapes them.
struct report_data {
  /// The job's name; may be empty.
  std::string name;
  std::string version;
  run_origin origin;
  /// The text of the job.
  std::string job;
  std::string job_hash;
  run_history history;
  run_summary summary;
  /// May be null.
  std::shared_ptr<const run_timeline> timeline;
};

/// Renders the page of a run: one HTML file that loads no other files and runs no scripts. It is
/// also well-formed XML.
std::string render_report(const report_data& x);

/// The page while a run is under way. It stays if the run is killed. Only the name and the origin
/// are used.
std::string render_unfinished(const report_data& x);

} // namespace troupe
