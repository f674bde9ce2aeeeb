#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace troupe {

/// Child processes of this program that run the same program. They end when the parent ends, for
/// any reason. Signals from the terminal reach only the parent, and the children's output goes to
/// the parent.
class children {
public:
  children() = default;
  ~children();
  children(const children&) = delete;
  children& operator=(const children&) = delete;

  /// Starts this program with other arguments. `name` is for messages. Throws std::system_error.
  void start(std::string name, const std::vector<std::string>& arguments);

  /// The first child that ended with an exit code other than 0 since the last call, in words. The
  /// cluster handles children that were killed.
  std::optional<std::string> failed();

  /// Whole lines that children have written to standard output or error since the last call. Call
  /// it often: a child whose output is not read blocks at some time.
  std::vector<std::string> said();

  /// Waits for all children, and kills those that still run after the deadline. Returns whether all
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
