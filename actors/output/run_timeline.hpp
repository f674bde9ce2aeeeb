#pragma once

#include "actors/status/activities.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// The newest activities of a task, in order. Those of one kind do not overlap.
struct task_timeline {
  task_name task;
  std::vector<activity> done;
  /// For workers: stretches of time in which gradients or weights were in transit.
  std::vector<activity> exchanged;
};

/// A notice to the operator, or the result of an evaluation.
struct timeline_mark {
  activity::time_point when;
  std::string text;
};

/// The newest activities of all tasks of a run, on one clock.
struct run_timeline {
  std::vector<task_timeline> tasks;
  std::vector<timeline_mark> marks;
};

/// Writes a timeline in the Trace Event Format, which Perfetto and chrome://tracing open: a JSON
/// object with a process for each task, and one for the marks. The time 0 is the begin of the first
/// activity; earlier marks are left out. Without activities, it is the time of the first mark.
std::string trace_events(const run_timeline& x);

/// A part of a timeline.
struct timeline_window {
  activity::time_point begin;
  activity::time_point end;
};

/// Chooses the part of the timeline of these tasks that shows the last `steps` computations of each
/// worker. The window ends with the last computation of the worker whose reports end first, because
/// its later activities may not be reported yet. Workers whose last computation ended more than two
/// seconds before the newest one do not count. If the window would have more than `most`
/// activities, it begins later. It is empty if no worker has computed.
timeline_window newest_steps(std::span<const task_timeline> x, std::size_t steps, std::size_t most);

} // namespace troupe
