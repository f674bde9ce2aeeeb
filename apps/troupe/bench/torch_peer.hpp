#pragma once

#include "apps/troupe/bench/python_process.hpp"
#include "apps/troupe/bench/runner.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace troupe::bench {

/// Python processes that train the same work with PyTorch: one, or several ranks of a
/// DistributedDataParallel over gloo, on loopback. All ranks train on the same batches, so their
/// losses are those of one process. The processes are stopped (SIGSTOP) while they have nothing to
/// do, so that spinning threads take no processor time. They end with this object.
class torch_peer {
public:
  /// Throws input_error if `python` (see `pythons`) has no PyTorch.
  torch_peer(const std::string& python, const work& what, const material& data, std::size_t threads,
             passing how, std::size_t ranks = 1);

  /// Steps that all ranks take: the seconds of the slowest rank, and the losses at rank 0.
  round run(std::size_t steps);

  const std::string& version() const noexcept { return version_; }
  const std::string& blas() const noexcept { return blas_; }

private:
  /// Throws input_error, with a reason, if there is no such interpreter or it has no PyTorch.
  void start(const std::string& python, const work& what, const material& data, std::size_t threads,
             passing how, std::size_t ranks);

  std::vector<std::unique_ptr<python_process>> processes_;
  std::string version_;
  std::string blas_;
};

} // namespace troupe::bench
