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
    leases,     ///< for the last samples of the epoch; `tasks` hold the leases
    weights,    ///< for the weights of `tasks`, at the end of an epoch
    fence,      ///< until `tasks` refuse the gradients of a lost worker
    report,     ///< for the final counts of `tasks`, at the end of the run
    evaluation, ///< for an evaluation, by the coordinator or by the evaluator task
    checkpoint, ///< for a checkpoint on its way to the disk
  };
  reason what = reason::nothing;
  std::vector<task_name> tasks;
  /// For reason::evaluation: the time limit of the evaluation.
  std::chrono::nanoseconds patience{0};
};

/// The cause of a stall.
struct stall_root {
  enum class kind {
    silent,       ///< `task` sends nothing: it is paused or cut off
    link,         ///< no message passes between `task` and `other`, which both run
    unresponsive, ///< `task` runs but does not answer
    readers,      ///< `task` cannot update: all its versions of the weights are in use
    computing,    ///< `task` does not finish a gradient
    reading,      ///< the input of `task` delivers no data
    updating,     ///< `task` does not finish an update
    evaluating,   ///< the coordinator's evaluation does not end
    writing,      ///< checkpoints are not written
    transfer,     ///< `task` and `other` exchange a large payload
  };
  kind what = kind::silent;
  task_name task;
  task_name other;

  friend auto operator<=>(const stall_root&, const stall_root&) = default;
};

/// What a stall_judge must know about a run.
struct stall_conditions {
  /// True if all workers must take part in each step. A lost worker then ends the run or the view.
  bool needs_all = false;
  /// True if the run continues from its newest checkpoint after a task is lost.
  bool elastic = false;
  /// True if a network connects the coordinator to a task.
  bool network = false;
  /// Number of steps that a worker makes between two waits for other tasks.
  std::uint64_t steps_between_waits = 1;
};

/// Detects that no task in the cluster makes progress, and finds the cause. Tasks report their
/// activity and the tasks that they wait for. A task is the cause if it is silent, or if it works
/// or hangs without waiting for another task.
///
/// A run stalls if no worker finishes a gradient and no shard finishes an update for some time.
/// This time is a few usual steps, and at least a second. If one worker is slow, but other workers
/// make progress, the run does not stall. This is a plain object, not an actor: its owner passes in
/// the messages and the times. All times must be of one clock.
class stall_judge {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// Training begins.
  void begin(const std::vector<task_name>& tasks, const stall_conditions& how, time_point now);

  void hear(const task_name& task, const proto::TaskStatus& x, time_point now);

  /// The number of payload bytes so far on the link between the coordinator and this task.
  void exchange(const task_name& task, std::uint64_t bytes, time_point now);

  /// The task has left or was lost. From now on, it cannot be the cause of a stall.
  void forget(const task_name& task) { tasks_.erase(task); }

  /// Reports progress that is not a step of a task: a lease was settled, weights arrived, or an
  /// evaluation ended.
  void moved(time_point now);

  /// Called a few times a second. Returns a text for the operator if the run stalls, still stalls,
  /// or continues.
  std::optional<std::string> judge(const coordinator_wait& own, time_point now);

  /// Causes of the current stall; empty if there is none.
  const std::vector<stall_root>& roots() const noexcept { return roots_; }

private:
  using duration = std::chrono::nanoseconds;

  /// Payload bytes that move over links.
  struct traffic {
    bool seen = false;
    std::uint64_t bytes = 0;
    /// The last time at which bytes moved. Long ago if none have moved.
    time_point moved;
    /// Earlier times, with the number of bytes at these times. The speed is measured from `from`.
    std::pair<time_point, std::uint64_t> from;
    std::pair<time_point, std::uint64_t> next_from;

    void see(std::uint64_t bytes_now, time_point moved_at, time_point now);
  };

  struct task_state {
    proto::TaskStatus status;
    time_point heard;
    /// When the task finished its newest step. If it has not finished a step: when training began.
    time_point moved;
    /// Estimated duration of a step. It is close to the longest recent step; zero before the first
    /// step.
    duration step{0};
    std::vector<task_name> waits_for;
    /// Between the task's process and all others, and between the task and the coordinator.
    traffic with_all;
    traffic with_coordinator;
  };

  struct stall {
    time_point since;
    time_point next_notice;
    duration pause;
  };

  using found = std::set<stall_root>;

  bool moves(const traffic& x) const;
  bool silent(const task_state& x) const;
  duration silence(const task_state& x) const;
  /// Follows the chain of waits that begins with this task, and adds the causes at its end to
  /// `roots`.
  void follow(const task_name& who, std::set<task_name>& seen, found& roots) const;
  void follow_coordinator(std::set<task_name>& seen, found& roots) const;
  /// True if a payload moves that `who` may wait for, or that `other` sends.
  bool transfers(const task_state& who, const task_name& other) const;
  bool link_is_dead(const task_state& who, const task_name& self, const task_name& other) const;
  found find_roots() const;
  /// The step time of the slowest task. All other tasks may be waiting for this task.
  duration longest_step() const;
  /// The time from one wait for other tasks to the next.
  duration longest_round() const;
  /// How long a run with these causes may stall before the operator gets a notice.
  duration patience(const found& roots) const;
  bool paused_or_cut_off() const;

  // -- words --
  std::string explain() const;
  std::string explain(const stall_root& x) const;
  bool all_silent() const;
  std::string explain_roots() const;
  std::string explain_silence_of_all() const;
  std::string end_of(const task_name& task) const;
  std::string ends_of(const std::vector<task_name>& tasks) const;
  std::string speed_of(const stall_root& x) const;
  std::string chain() const;
  std::string resumed() const;
  double seconds_since(time_point x) const;

  std::map<task_name, task_state> tasks_;
  stall_conditions how_;
  bool begun_ = false;
  time_point now_;
  time_point moved_;
  /// The last time at which this process was found to have been paused. Reports from before that
  /// time are old because of the pause, so their age proves nothing.
  time_point awake_;
  /// Steps that began before this time are not used for the estimates of step times.
  time_point learn_from_;
  coordinator_wait own_;
  std::optional<stall> stall_;
  std::vector<stall_root> roots_;
};

} // namespace troupe
