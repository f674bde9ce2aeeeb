#pragma once

#include "messages/names.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace troupe {

/// Child processes that run the same program as this process. They end when this process ends, for
/// any reason. Signals from the terminal do not reach the children. This process receives the
/// output of the children.
class children {
public:
  children() = default;
  ~children();
  children(const children&) = delete;
  children& operator=(const children&) = delete;

  /// Starts a child with these arguments. `name` is its name in error texts. Throws
  /// std::system_error.
  void start(std::string name, const std::vector<std::string>& arguments);

  /// Describes a child that has ended with an exit code other than 0. Each call describes another
  /// child; empty if there is none. It does not report a child that was killed, because the cluster
  /// handles the loss of its task.
  std::optional<std::string> failed();

  /// Starts all children again that were killed, unless failed() has already noticed their end.
  /// failed() and wait() then ignore the end of the killed process.
  void restart_killed();

  /// Complete lines that children have written to standard output or error since the last call.
  /// Call it often: a child blocks if its output is not read for a long time.
  std::vector<std::string> said();

  /// A child that was killed or ended with an exit code other than 0.
  struct ending {
    std::string name;
    /// Absent if the child was killed.
    std::optional<int> exit_code;
    /// The signal that killed the child. Absent if the child ended by itself, or if wait() killed
    /// it after the deadline.
    std::optional<int> signal = {};
    /// True if end() had asked the child to end, or if restart_killed() had started it again.
    bool excused = false;

    std::string text() const;
  };

  /// Waits for all children to end. Those that still run after the deadline are killed. Returns the
  /// children that were killed or ended with an exit code other than 0. If restart_killed() has
  /// started a child again, only the last process of this child is considered.
  std::vector<ending> wait(std::chrono::milliseconds deadline);

  /// Like wait(), after the work of the children is done. Children that still run after a second
  /// get SIGTERM: they may wait for the coordinator, which has ended. The deadline begins then.
  std::vector<ending> end(std::chrono::milliseconds deadline);

private:
  struct child {
    std::string name;
    pid_t pid;
    std::vector<std::string> arguments;
    bool excused = false; // see `ending`
  };

  /// The reading end of the pipe with a child's output. The descriptor is -1 after the output has
  /// ended.
  struct voice {
    int fd;
    std::string unfinished;
  };

  void listen(voice& x);
  /// False if children still run after this time.
  bool all_end_within(std::chrono::milliseconds time);

  std::vector<child> running_;
  std::vector<voice> voices_;
  std::vector<std::string> lines_;
  std::vector<ending> bad_ends_;
};

/// After a successful run of `troupe train`: describes a child whose end is a failure. Empty if
/// there is none. It is not a failure if somebody killed a child (with SIGKILL, for example), if an
/// excused child ended with exit_failed, or if one of the workers in `gone` hangs or ended with
/// exit_failed. `gone` lists the workers that were lost while the run continued
/// (run_summary::gone).
std::string problem_of(const std::vector<children::ending>& ends,
                       const std::vector<task_name>& gone);

/// Makes this process end when the process that started it, `parent`, ends.
void end_with_parent(pid_t parent);

} // namespace troupe
