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

/// For whom the coordinator itself waits.
struct coordinator_wait {
  enum class reason {
    nothing,
    leases,     ///< of the epoch's last samples, which `tasks` hold
    weights,    ///< of `tasks`, at the end of an epoch
    fence,      ///< `tasks` are to refuse a lost worker
    report,     ///< of `tasks`, at the end of the run
    evaluation, ///< by the coordinator's process, or the evaluator's
    checkpoint, ///< to be written
  };
  reason what = reason::nothing;
  std::vector<task_name> tasks;
  /// Evaluation: how long it may take.
  std::chrono::nanoseconds patience{0};
};

/// Why nothing moves.
struct stall_root {
  enum class kind {
    silent,       ///< nothing is heard of `task`: it is paused, or cut off
    link,         ///< between `task` and `other`, which are both alive
    unresponsive, ///< `task` is alive, and answers nobody
    readers,      ///< all versions of `task`'s weights are held
    computing,    ///< a gradient takes `task` for ever
    reading,      ///< `task`'s input delivers nothing
    updating,     ///< an update takes `task` for ever
    evaluating,   ///< the coordinator's evaluation does not end
    writing,      ///< checkpoints do not get to the disk
  };
  kind what = kind::silent;
  task_name task;
  task_name other;

  friend auto operator<=>(const stall_root&, const stall_root&) = default;
};

/// Notices that nothing moves in the whole cluster, and finds out why: tasks tell what they do and
/// for whom they wait; a task that waits for nobody, or is silent, is the root.
///
/// Nothing moves when no worker finishes a gradient and no shard an update for longer than a few
/// steps take, and at least a second. While one worker is slow and others go on, all is well. Plain
/// state, fed with messages and times of one clock.
class stall_judge {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// Training begins. `needs_all`: a lost worker ends the run. `steps_between_waits`: so many steps
  /// a worker makes by itself before it waits for others again.
  void begin(const std::vector<task_name>& tasks, bool needs_all, time_point now,
             std::uint64_t steps_between_waits = 1);

  void hear(const task_name& task, const proto::TaskStatus& x, time_point now);

  /// The task left or is lost: nobody waits for it.
  void forget(const task_name& task) { tasks_.erase(task); }

  /// Something else has moved: a lease was settled, weights arrived, an evaluation ended.
  void moved(time_point now);

  /// Called a few times a second. What the operator should be told now, if anything: that nothing
  /// moves, that it still does not, or that it does again.
  std::optional<std::string> judge(const coordinator_wait& own, time_point now);

  /// Of the stall under way; empty where there is none.
  const std::vector<stall_root>& roots() const noexcept { return roots_; }

private:
  using duration = std::chrono::nanoseconds;

  struct task_state {
    proto::TaskStatus status;
    time_point heard;
    /// When it made its last step, or began.
    time_point moved;
    /// The longest that its steps took of late; zero before the first.
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
  /// Follows those for whom a task waits, and collects the roots.
  void follow(const task_name& who, std::set<task_name>& seen, found& roots) const;
  void follow_coordinator(std::set<task_name>& seen, found& roots) const;
  bool link_is_dead(const task_state& who, const task_name& self, const task_name& other) const;
  found find_roots() const;
  /// The slowest task counts: it may be the only one at work.
  duration longest_step() const;
  /// From one wait for others to the next.
  duration longest_round() const;
  /// How long nothing may move before these are worth a notice.
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
  /// Before this, the judge itself was asleep, and knows nothing.
  time_point awake_;
  /// Steps that began before this are no measure of how long steps take.
  time_point learn_from_;
  coordinator_wait own_;
  std::optional<stall> stall_;
  std::vector<stall_root> roots_;
};

} // namespace troupe
