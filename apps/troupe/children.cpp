#include "apps/troupe/children.hpp"

#include "apps/troupe/exit_code.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

extern char** environ;

namespace troupe {

namespace {

/// How long end() waits before it sends SIGTERM.
constexpr std::chrono::seconds until_asked{1};

/// True for signals that another program or a person sends. A fault in the child itself causes
/// other signals, such as SIGSEGV.
bool is_from_outside(int signal) {
  return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

} // namespace

children::~children() {
  wait(std::chrono::milliseconds{0});
  for (auto& x : voices_)
    if (x.fd >= 0)
      ::close(x.fd);
}

void children::start(std::string name, const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  std::string program = "/proc/self/exe";
  argv.push_back(program.data());
  for (auto& x : arguments)
    argv.push_back(const_cast<char*>(x.c_str()));
  argv.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw std::system_error{errno, std::generic_category(), "cannot start " + name};
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  voices_.push_back({ends[0], ""});
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t pid = 0;
  const auto error =
    ::posix_spawn(&pid, program.c_str(), &files, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  ::close(ends[1]);
  if (error != 0)
    throw std::system_error{error, std::generic_category(), "cannot start " + name};
  running_.push_back({std::move(name), pid, arguments});
}

void children::restart_killed() {
  std::vector<child> killed;
  for (std::size_t i = 0; i < running_.size();) {
    siginfo_t info{};
    const auto pid = static_cast<id_t>(running_[i].pid);
    // WNOWAIT keeps the status of the child. If the child has ended by itself, failed() reads this
    // status later.
    if (::waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0
        || info.si_code == CLD_EXITED) {
      ++i;
      continue;
    }
    ::waitpid(running_[i].pid, nullptr, 0);
    killed.push_back(std::move(running_[i]));
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (auto& x : killed) {
    start(x.name, x.arguments);
    running_.back().excused = true;
  }
}

void children::listen(voice& x) {
  std::array<char, 4096> buffer;
  ssize_t n = 0;
  while ((n = ::read(x.fd, buffer.data(), buffer.size())) > 0)
    x.unfinished.append(buffer.data(), static_cast<std::size_t>(n));
  if (n == 0) {
    ::close(std::exchange(x.fd, -1));
    if (!x.unfinished.empty())
      x.unfinished += '\n';
  }
  std::size_t begin = 0;
  for (auto end = x.unfinished.find('\n'); end != std::string::npos;
       end = x.unfinished.find('\n', begin)) {
    lines_.push_back(x.unfinished.substr(begin, end - begin));
    begin = end + 1;
  }
  x.unfinished.erase(0, begin);
}

std::vector<std::string> children::said() {
  for (auto& x : voices_)
    if (x.fd >= 0)
      listen(x);
  return std::exchange(lines_, {});
}

std::optional<std::string> children::failed() {
  for (auto i = running_.begin(); i != running_.end(); ++i) {
    int status = 0;
    if (::waitpid(i->pid, &status, WNOHANG) != i->pid)
      continue;
    auto name = std::move(i->name);
    const bool excused = i->excused;
    running_.erase(i);
    if (status == 0)
      return failed();
    if (WIFSIGNALED(status)) {
      // A killed child is not a failure here, because the cluster notices the lost task and may
      // continue without it.
      bad_ends_.push_back({std::move(name), {}, WTERMSIG(status), excused});
      return failed();
    }
    bad_ends_.push_back({std::move(name), WEXITSTATUS(status), {}, excused});
    return bad_ends_.back().text();
  }
  return std::nullopt;
}

std::string children::ending::text() const {
  if (signal)
    return name + " was killed by signal " + std::to_string(*signal) + " (" + ::strsignal(*signal)
      + ')';
  return exit_code ? name + " ended with exit code " + std::to_string(*exit_code)
                   : name + " did not end, and was killed";
}

bool children::all_end_within(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (!running_.empty()) {
    for (auto& x : voices_)
      if (x.fd >= 0)
        listen(x);
    if (failed())
      continue;
    if (std::chrono::steady_clock::now() >= end)
      return false;
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
  return true;
}

std::vector<children::ending> children::wait(std::chrono::milliseconds deadline) {
  if (!all_end_within(deadline))
    for (auto& x : running_) {
      ::kill(x.pid, SIGKILL);
      ::waitpid(x.pid, nullptr, 0);
      bad_ends_.push_back({std::move(x.name), std::nullopt});
    }
  running_.clear();
  return bad_ends_;
}

std::vector<children::ending> children::end(std::chrono::milliseconds deadline) {
  if (!all_end_within(until_asked))
    for (auto& x : running_) {
      ::kill(x.pid, SIGTERM);
      x.excused = true;
    }
  return wait(deadline);
}

std::string problem_of(const std::vector<children::ending>& ends,
                       const std::vector<task_name>& gone) {
  const auto is_problem = [&](const children::ending& x) {
    if (x.signal && is_from_outside(*x.signal))
      return false;
    if (x.exit_code == exit_failed && x.excused)
      return false;
    return x.exit_code.value_or(exit_failed) != exit_failed
      || std::ranges::find(gone, x.name, [](auto& y) { return to_string(y); }) == gone.end();
  };
  const auto found = std::ranges::find_if(ends, is_problem);
  return found == ends.end() ? "" : found->text();
}

void end_with_parent(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent)
    std::_Exit(1); // The parent has already ended.
}

} // namespace troupe
