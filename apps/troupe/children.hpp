#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace troupe {

/// Processes of this program, started by it. They end with it, whatever happens to it; a signal
/// from the terminal reaches the parent alone, and what they say comes to it.
class children {
public:
  children() = default;
  ~children();
  children(const children&) = delete;
  children& operator=(const children&) = delete;

  /// Starts this program with other arguments. `name` is for messages. Throws std::system_error.
  void start(std::string name, const std::vector<std::string>& arguments);

  /// The first child that ended with an exit code other than 0 since the last call, in words.
  /// Those that were killed are left to the cluster.
  std::optional<std::string> failed();

  /// Whole lines that children have written to standard output or error since the last call. To be
  /// called often: who is not heard stops at some time.
  std::vector<std::string> said();

  /// Waits for all children; those that are still there after the deadline are killed. Whether all
  /// ended with 0.
  bool wait(std::chrono::milliseconds deadline);

private:
  struct child {
    std::string name;
    pid_t pid;
  };

  /// The reading end of what a child writes; -1 once it has ended.
  struct voice {
    int fd;
    std::string unfinished;
  };

  void listen(voice& x);

  std::vector<child> running_;
  std::vector<voice> voices_;
  std::vector<std::string> lines_;
  bool all_well_ = true;
};

/// Makes this process end with the one that started it, `parent`.
void end_with_parent(pid_t parent);

} // namespace troupe
