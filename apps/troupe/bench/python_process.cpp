#include "apps/troupe/bench/python_process.hpp"

#include "apps/troupe/bench/openblas.hpp"
#include "kernels/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <poll.h>
#include <spawn.h>
#include <stdexcept>
#include <sys/socket.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

extern char** environ;

namespace troupe::bench {

namespace {

/// The environment of this process, plus variables that set the number of threads of OpenMP and of
/// libraries that multiply matrices.
std::vector<std::string> environment_for(std::size_t threads) {
  std::vector<std::string> result;
  for (char** x = environ; *x != nullptr; ++x) {
    const std::string_view entry{*x};
    if (entry.find("_NUM_THREADS=") == std::string_view::npos)
      result.emplace_back(entry);
  }
  for (const auto* name : {"OMP", "OPENBLAS", "MKL", "BLIS"})
    result.push_back(fmt::format("{}_NUM_THREADS={}", name, threads));
  if (std::getenv("OPENBLAS_CORETYPE") == nullptr && *openblas::core_type() != '\0')
    result.push_back(fmt::format("OPENBLAS_CORETYPE={}", openblas::core_type()));
  return result;
}

pid_t spawn(const std::string& python, std::string_view script, std::size_t threads, int socket) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, socket, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, socket, STDOUT_FILENO);
  auto variables = environment_for(threads);
  std::vector<char*> environment;
  for (auto& x : variables)
    environment.push_back(x.data());
  environment.push_back(nullptr);
  std::string words[] = {python, "-c", std::string{script}};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t pid = 0;
  const auto error =
    ::posix_spawnp(&pid, python.c_str(), &files, nullptr, arguments, environment.data());
  posix_spawn_file_actions_destroy(&files);
  return error == 0 ? pid : 0;
}

} // namespace

std::vector<std::string> pythons(const std::string& python) {
  if (!python.empty())
    return {python};
  return {"python3", "/usr/bin/python3"};
}

python_process::python_process(const std::string& python, std::string_view script,
                               std::size_t threads) {
  // A socket pair is used instead of a pipe: a write to a process that has ended can then return an
  // error instead of raising a signal.
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::system_error{errno, std::generic_category(), "cannot start " + python};
  pid_ = spawn(python, script, threads, ends[1]);
  ::close(ends[1]);
  if (pid_ == 0) {
    ::close(ends[0]);
    throw input_error{"there is no program " + python};
  }
  socket_ = ends[0];
}

python_process::~python_process() {
  ::close(socket_);
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void python_process::tell(const void* bytes, std::size_t size) {
  const auto* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const auto n = ::send(socket_, next, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      throw std::runtime_error{"the Python process has ended; see its messages above"};
    next += n;
    size -= static_cast<std::size_t>(n);
  }
}

std::string python_process::answer(std::chrono::milliseconds longest) {
  for (;;) {
    if (const auto end = buffer_.find('\n'); end != std::string::npos) {
      auto line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    pollfd output{socket_, POLLIN, 0};
    const auto most = std::chrono::milliseconds{std::numeric_limits<int>::max()};
    if (::poll(&output, 1, static_cast<int>(std::min(longest, most).count())) == 0)
      throw std::runtime_error{fmt::format("the Python process has not answered within {:g} s",
                                           std::chrono::duration<double>(longest).count())};
    char part[4096];
    const auto n = ::recv(socket_, part, sizeof part, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
      continue;
    if (n <= 0)
      return {};
    buffer_.append(part, static_cast<std::size_t>(n));
  }
}

void python_process::pause() {
  ::kill(pid_, SIGSTOP);
}

void python_process::go_on() {
  ::kill(pid_, SIGCONT);
}

void python_process::finish() {
  go_on();
  ::shutdown(socket_, SHUT_WR);
  try {
    while (!answer().empty())
      ;
  } catch (const std::runtime_error&) {
    // The destructor kills the process.
  }
}

} // namespace troupe::bench
