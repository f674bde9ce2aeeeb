#pragma once

#include "messages/names.hpp"
#include "messages/proto/wire.pb.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace troupe {

/// What the coordinator itself waits for.
struct coordinator_wait {
  enum class reason {
    nothing,
    leases,     ///< `tasks` hold the leases of the epoch's last samples
    weights,    ///< from `tasks`, at the end of an epoch
    fence,      ///< `tasks` must fence a lost worker
    report,     ///< from `tasks`, at the end of the run
    evaluation, ///< by the coordinator or the evaluator task
    checkpoint, ///< written to disk
  };
  reason what = reason::nothing;
  std::vector<task_name> tasks;
  /// Evaluation: its time limit.
  std::chrono::nanoseconds patience{0};
};

/// The cause of a stall.
struct stall_root {
  enum class kind {
    silent,       ///< `task` sends nothing: it is paused or cut off
    link,         ///< between `task` and `other`, which are both alive
    unresponsive, ///< `task` is alive but does not answer
    readers,      ///< readers hold all versions of `task`'s weights
    computing,    ///< `task` does not finish a gradient
    reading,      ///< `task`'s input delivers no data
    updating,     ///< `task` does not finish an update
    evaluating,   ///< the coordinator's evaluation does not end
    writing,      ///< checkpoints are not written
  };
  kind what = kind::silent;
  task_name task;
  task_name other;

  friend auto operator<=>(const stall_root&, const stall_root&) = default;
};

/// Notices that no task in the cluster makes progress, and finds out why. Tasks report what they do
/// and which tasks they wait for. A task that waits for no other, or is silent, is the cause.
///
/// A run stalls if for longer than a few steps take, and at least a second, no worker finishes a
/// gradient and no shard an update. A slow worker is no stall while others make progress. Plain
/// state, fed with messages and times of one clock.
class stall_judge {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// Training begins. `needs_all`: a lost worker ends the run. `steps_between_waits`: number of
  /// steps that a worker makes before it waits for others again.
  void begin(const std::vector<task_name>& tasks, bool needs_all, time_point now,
             std::uint64_t steps_between_waits = 1);

  void hear(const task_name& task, const proto::TaskStatus& x, time_point now);

  /// The task left or is lost: no other task waits for it.
  void forget(const task_name& task) { tasks_.erase(task); }

  /// Other progress: a lease was settled, weights arrived, an evaluation ended.
  void moved(time_point now);

  /// Called a few times a second. Returns a text for the operator if the run stalls, still stalls,
  /// or continues.
  std::optional<std::string> judge(const coordinator_wait& own, time_point now);

  /// Causes of the current stall; empty if there is none.
  const std::vector<stall_root>& roots() const noexcept { return roots_; }

private:
  using duration = std::chrono::nanoseconds;

  struct task_state {
    proto::TaskStatus status;
    time_point heard;
    /// Time of its last step, or of its start.
    time_point moved;
    /// The longest of its recent steps; zero before the first.
    duration step{0};
    std::vector<task_name> waits_for;
  };

  struct stall {
    time_point since;
    time_point next_notice;
    duration pause;
  };

  using found = std::set<stall_root>;

  bool silent(const task_state& x) const;
  duration silence(const task_state& x) const;
  /// Follows the tasks that a task waits for, and collects the causes.
  void follow(const task_name& who, std::set<task_name>& seen, found& roots) const;
  void follow_coordinator(std::set<task_name>& seen, found& roots) const;
  bool link_is_dead(const task_state& who, const task_name& self, const task_name& other) const;
  found find_roots() const;
  /// Step time of the slowest task, which may be the only busy one.
  duration longest_step() const;
  /// Time from one wait for others to the next.
  duration longest_round() const;
  /// How long the run may stall before these causes are worth a notice.
  duration patience(const found& roots) const;
  bool paused_or_cut_off() const;

  // -- words --
  std::string explain() const;
  std::string explain(const stall_root& x) const;
  std::string advice(const stall_root& x) const;
  std::string chain() const;
  std::string resumed() const;
  double seconds_since(time_point x) const;

  std::map<task_name, task_state> tasks_;
  bool needs_all_ = false;
  std::uint64_t steps_between_waits_ = 1;
  bool begun_ = false;
  time_point now_;
  time_point moved_;
  /// Before this time, the judge itself was asleep and knows nothing.
  time_point awake_;
  /// Steps that began before this time are not used to measure steps.
  time_point learn_from_;
  coordinator_wait own_;
  std::optional<stall> stall_;
  std::vector<stall_root> roots_;
};

} // namespace troupe
