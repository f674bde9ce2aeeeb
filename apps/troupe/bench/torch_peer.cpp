#include "apps/troupe/bench/torch_peer.hpp"

#include "apps/troupe/bench/openblas.hpp"
#include "kernels/error.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <spawn.h>
#include <stdexcept>
#include <string_view>
#include <sys/socket.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <vector>

extern char** environ;

namespace troupe::bench {

/// The text of torch_peer.py.
extern const std::string_view torch_peer_script;

namespace {

/// The environment, with the number of threads of OpenMP and of the libraries that multiply
/// matrices.
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

pid_t spawn(const std::string& python, std::size_t threads, int input, int output) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  auto variables = environment_for(threads);
  std::vector<char*> environment;
  for (auto& x : variables)
    environment.push_back(x.data());
  environment.push_back(nullptr);
  std::string words[] = {python, "-c", std::string{torch_peer_script}};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t pid = 0;
  const auto error =
    ::posix_spawnp(&pid, python.c_str(), &files, nullptr, arguments, environment.data());
  posix_spawn_file_actions_destroy(&files);
  return error == 0 ? pid : 0;
}

nlohmann::json describe(const work& what, const material& data, std::size_t threads, passing how) {
  auto tensors = nlohmann::json::array();
  for (const auto& x : data.parameters.entries())
    tensors.push_back({x.name, x.shape.extents()});
  const auto kind = what.rule.kind;
  return {{"work", what.name},
          {"threads", threads},
          {"processor_time", how == passing::processor_time},
          {"tensors", tensors},
          {"batches", batches},
          {"batch", what.batch},
          {"inputs", what.inputs},
          {"ids", what.takes_ids},
          {"labels", what.labels},
          {"optimizer",
           {{"rate", what.rate},
            {"kind",
             kind == optimizer_kind::sgd          ? "sgd"
               : kind == optimizer_kind::momentum ? "momentum"
               : kind == optimizer_kind::adam     ? "adam"
                                                  : "adamw"}}}};
}

} // namespace

torch_peer::torch_peer(const std::string& python, const work& what, const material& data,
                       std::size_t threads, passing how) {
  const auto candidates = python.empty() ? std::vector<std::string>{"python3", "/usr/bin/python3"}
                                         : std::vector<std::string>{python};
  std::string reasons;
  for (const auto& x : candidates) {
    std::string reason;
    if (start(x, what, data, threads, how, reason))
      return;
    end();
    reasons += (reasons.empty() ? "" : "; ") + reason;
  }
  throw input_error{"--peer=torch needs a Python that has PyTorch (on Debian: apt-get install "
                    "python3-torch), given by --python=PATH: "
                    + reasons};
}

torch_peer::~torch_peer() {
  end();
}

bool torch_peer::start(const std::string& python, const work& what, const material& data,
                       std::size_t threads, passing how, std::string& reason) {
  // A socket pair: writing to a peer that has ended is an error there, and no signal.
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::system_error{errno, std::generic_category(), "cannot start " + python};
  socket_ = ends[0];
  pid_ = spawn(python, threads, ends[1], ends[1]);
  ::close(ends[1]);
  if (pid_ == 0) {
    reason = "there is no program " + python;
    return false;
  }
  try {
    tell(describe(what, data, threads, how).dump() + '\n');
    tell(data.weights.data(), data.weights.size() * sizeof(float));
    tell(data.features.data(), data.features.size() * sizeof(float));
    tell(data.ids.data(), data.ids.size() * sizeof(std::int32_t));
    tell(data.labels.data(), data.labels.size() * sizeof(std::int32_t));
  } catch (const std::runtime_error&) {
    // It says why below.
  }
  const auto hello = nlohmann::json::parse(answer(), nullptr, false);
  if (!hello.is_object() || hello.contains("error")) {
    reason =
      hello.is_object() ? hello["error"].get<std::string>() : python + " ended without an answer";
    return false;
  }
  version_ = hello.at("version");
  blas_ = hello.at("blas");
  ::kill(pid_, SIGSTOP);
  return true;
}

void torch_peer::end() {
  if (socket_ >= 0)
    ::close(socket_);
  socket_ = -1;
  if (pid_ != 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_ = 0;
  buffer_.clear();
}

void torch_peer::tell(const void* bytes, std::size_t size) {
  const auto* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const auto n = ::send(socket_, next, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      throw std::runtime_error{"the process of PyTorch has ended; its messages stand above"};
    next += n;
    size -= static_cast<std::size_t>(n);
  }
}

/// A line; empty where the process has ended.
std::string torch_peer::answer() {
  for (;;) {
    if (const auto end = buffer_.find('\n'); end != std::string::npos) {
      auto line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    char part[4096];
    const auto n = ::recv(socket_, part, sizeof part, 0);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return {};
    buffer_.append(part, static_cast<std::size_t>(n));
  }
}

round torch_peer::run(std::size_t steps) {
  ::kill(pid_, SIGCONT);
  tell(std::to_string(steps) + '\n');
  const auto reply = nlohmann::json::parse(answer(), nullptr, false);
  if (!reply.is_object())
    throw std::runtime_error{"the process of PyTorch has ended; its messages stand above"};
  ::kill(pid_, SIGSTOP);
  round result;
  result.seconds = reply.at("seconds");
  for (const auto& x : reply.at("losses"))
    result.losses.push_back(x.is_number() ? x.get<double>() : std::nan(""));
  return result;
}

} // namespace troupe::bench
