#pragma once

#include "apps/troupe/bench/python_process.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe::bench {

/// Python processes that run the same all-reduces with PyTorch's gloo, one per rank, on loopback.
/// They are stopped (SIGSTOP) while they have no work. They end with this object.
class gloo_peer {
public:
  /// Throws input_error if `python` (see `pythons`) has no PyTorch.
  /// @param port a free port on loopback
  gloo_peer(const std::string& python, std::size_t ranks, std::uint16_t port);

  /// Runs `times` all-reduces of this number of float32 elements. Returns the seconds of each on
  /// rank
  /// 0. Throws std::runtime_error if a sum was wrong or a process has ended.
  std::vector<double> run(std::size_t elements, std::size_t times);

  const std::string& version() const noexcept { return version_; }

private:
  /// Throws input_error with the reason if the interpreter does not exist or has no PyTorch.
  void start(const std::string& python, std::size_t ranks, std::uint16_t port);

  std::vector<std::unique_ptr<python_process>> processes_;
  std::string version_;
};

} // namespace troupe::bench
