#include "apps/troupe/bench/all_reduce_peer.hpp"

#include "kernels/error.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <stdexcept>
#include <string_view>

namespace troupe::bench {

/// The texts of gloo_peer.py and mpi_peer.py.
extern const std::string_view gloo_peer_script;
extern const std::string_view mpi_peer_script;

bool all_reduce_peer::has(const std::string& name) {
  return name == "gloo" || name == "mpi";
}

all_reduce_peer::all_reduce_peer(const std::string& name, const std::string& python,
                                 std::size_t ranks, std::uint16_t port)
  : name_(name) {
  std::string reasons;
  for (const auto& x : pythons(python)) {
    try {
      start(x, ranks, port);
      return;
    } catch (const input_error& error) {
      processes_.clear();
      reasons += (reasons.empty() ? "" : "; ") + std::string{error.what()};
    }
  }
  throw input_error{(name_ == "mpi"
                       ? "--peer=mpi needs OpenMPI and its compiler (on Debian: apt-get install "
                         "openmpi-bin libopenmpi-dev): "
                       : "--peer=gloo needs a Python that has PyTorch (on Debian: apt-get install "
                         "python3-torch), given by --python=PATH: ")
                    + reasons};
}

// OpenMPI must end by itself and not be killed, because it removes its shared memory when it ends.
all_reduce_peer::~all_reduce_peer() {
  if (name_ != "mpi")
    return;
  for (auto& x : processes_)
    x->finish();
}

// Starts one Python process per rank. For OpenMPI, starts a single process, which then starts all
// ranks.
void all_reduce_peer::start(const std::string& python, std::size_t ranks, std::uint16_t port) {
  const bool mpi = name_ == "mpi";
  for (std::size_t r = 0; r < (mpi ? 1 : ranks); ++r) {
    processes_.push_back(
      std::make_unique<python_process>(python, mpi ? mpi_peer_script : gloo_peer_script, 1));
    try {
      processes_.back()->tell(nlohmann::json{{"rank", r}, {"ranks", ranks}, {"port", port}}.dump()
                              + '\n');
    } catch (const std::runtime_error&) {
      // The process has ended. The code below reports the reason.
    }
  }
  for (auto& x : processes_) {
    const auto hello = nlohmann::json::parse(x->answer(), nullptr, false);
    if (!hello.is_object())
      throw input_error{python + " ended without an answer"};
    if (hello.contains("error"))
      throw input_error{hello["error"].get<std::string>()};
    const auto version = hello.at("version").get<std::string>();
    title_ = mpi ? "OpenMPI " + version : "PyTorch " + version + ", gloo";
  }
  for (auto& x : processes_)
    x->pause();
}

std::vector<double> all_reduce_peer::run(std::size_t elements, std::size_t times) {
  for (auto& x : processes_)
    x->go_on();
  for (auto& x : processes_)
    x->tell(fmt::format("{} {}\n", elements, times));
  std::vector<double> result;
  for (auto& x : processes_) {
    const auto reply = nlohmann::json::parse(x->answer(), nullptr, false);
    if (!reply.is_object())
      throw std::runtime_error{"a process of " + title_ + " has ended; see its messages above"};
    if (!reply.at("right").get<bool>())
      throw std::runtime_error{name_ + "'s sum is wrong"};
    if (result.empty())
      result = reply.at("seconds").get<std::vector<double>>();
  }
  for (auto& x : processes_)
    x->pause();
  if (result.size() != times || !std::ranges::all_of(result, [](double s) { return s > 0; }))
    throw std::runtime_error{fmt::format(
      "{} has answered the durations [{}] of {} all-reduces; expected one above 0 for each", title_,
      fmt::join(result, ", "), times)};
  return result;
}

} // namespace troupe::bench
