#include "apps/troupe/children.hpp"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>

extern char** environ;

namespace troupe {

children::~children() {
  wait(std::chrono::milliseconds{0});
}

void children::start(std::string name, const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  std::string program = "/proc/self/exe";
  argv.push_back(program.data());
  for (auto& x : arguments)
    argv.push_back(const_cast<char*>(x.c_str()));
  argv.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t pid = 0;
  const auto error =
    ::posix_spawn(&pid, program.c_str(), nullptr, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  if (error != 0)
    throw std::system_error{error, std::generic_category(), "cannot start " + name};
  running_.push_back({std::move(name), pid});
}

std::optional<std::string> children::failed() {
  for (auto i = running_.begin(); i != running_.end(); ++i) {
    int status = 0;
    if (::waitpid(i->pid, &status, WNOHANG) != i->pid)
      continue;
    auto name = std::move(i->name);
    running_.erase(i);
    // The cluster itself notices one that was killed, and may go on without it.
    if (status == 0 || WIFSIGNALED(status))
      return failed();
    all_well_ = false;
    return name + " ended with exit code " + std::to_string(WEXITSTATUS(status));
  }
  return std::nullopt;
}

bool children::wait(std::chrono::milliseconds deadline) {
  const auto limit = std::chrono::steady_clock::now() + deadline;
  while (!running_.empty()) {
    if (failed())
      continue;
    if (std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds{5});
      continue;
    }
    for (auto& x : running_) {
      ::kill(x.pid, SIGKILL);
      ::waitpid(x.pid, nullptr, 0);
    }
    all_well_ = all_well_ && running_.empty();
    running_.clear();
  }
  return all_well_;
}

void end_with_parent(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent)
    std::_Exit(1); // It had ended before.
}

} // namespace troupe
