#pragma once

#include "apps/troupe/bench/python_process.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe::bench {

/// Processes on this host, one per rank, that run the same all-reduces with another library: with
/// PyTorch's gloo on loopback, or with OpenMPI. The processes are stopped (SIGSTOP) while they have
/// no work. The destructor ends them.
class all_reduce_peer {
public:
  /// True if `name` is the name of a peer.
  static bool has(const std::string& name);

  /// Throws input_error if the peer cannot run, for example because `python` (see `pythons`) has no
  /// PyTorch.
  /// @param name "gloo" or "mpi"
  /// @param port a free port on loopback
  all_reduce_peer(const std::string& name, const std::string& python, std::size_t ranks,
                  std::uint16_t port);
  ~all_reduce_peer();
  all_reduce_peer(const all_reduce_peer&) = delete;
  all_reduce_peer& operator=(const all_reduce_peer&) = delete;

  /// Runs `times` all-reduces of this number of float32 elements. Returns the duration of each
  /// all-reduce on rank 0, in seconds. Throws std::runtime_error if a sum was wrong, a process has
  /// ended or does not answer, or an answer is not complete.
  std::vector<double> run(std::size_t elements, std::size_t times);

  const std::string& name() const noexcept { return name_; }

  /// The library and its version.
  const std::string& title() const noexcept { return title_; }

private:
  /// Throws input_error with the reason if the peer cannot run.
  void start(const std::string& python, std::size_t ranks, std::uint16_t port);

  std::string name_;
  std::vector<std::unique_ptr<python_process>> processes_;
  std::string title_;
};

} // namespace troupe::bench
