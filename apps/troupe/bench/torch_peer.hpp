#pragma once

#include "apps/troupe/bench/python_process.hpp"
#include "apps/troupe/bench/runner.hpp"

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace troupe::bench {

struct torch_options {
  std::size_t threads = 1;
  passing how = passing::time;
  std::size_t ranks = 1;
  /// The processor of each rank. If empty, the system chooses processors.
  std::vector<unsigned> processors = {};
  /// "cpu", or "cuda:N". On a GPU, times are measured between two events of the GPU.
  std::string device = "cpu";
  /// "eager"; on a GPU also "graph" (the step is one CUDA graph) or "compile" (torch.compile).
  std::string mode = "eager";
  /// float32, or a 16-bit type, with which PyTorch uses autocast.
  dtype precision = dtype::float32;
};

/// Thrown if PyTorch cannot train a model in this mode. The text gives the reason.
struct torch_unavailable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Python processes that train the same work with PyTorch: one process, or several ranks of a
/// DistributedDataParallel with Gloo on loopback. All ranks train on the same batches, so their
/// losses equal those of one process. PyTorch's threads use processor time while they wait. The
/// processes are therefore stopped (SIGSTOP) while they have no work. They end when this object is
/// destroyed.
class torch_peer {
public:
  /// Throws input_error if `python` (see `pythons`) has no PyTorch, or if PyTorch cannot use the
  /// device. Throws torch_unavailable if PyTorch cannot train this work in this mode.
  torch_peer(const std::string& python, const work& what, const material& data,
             const torch_options& options);

  /// All ranks make this number of steps. Returns the seconds of the slowest rank, and the losses
  /// at rank 0. A CUDA graph computes the losses right only for at most 10 steps: if there are more
  /// steps, it returns the last loss for each step. Throws std::runtime_error if a process ends or
  /// does not answer, or if an answer is not complete.
  round run(std::size_t steps);

  const std::string& version() const noexcept { return version_; }
  const std::string& blas() const noexcept { return blas_; }

private:
  /// Throws input_error with the reason if the interpreter does not exist or has no PyTorch.
  void start(const std::string& python, const work& what, const material& data,
             const torch_options& options);

  std::vector<std::unique_ptr<python_process>> processes_;
  std::string version_;
  std::string blas_;
  /// Seconds per step in the last round.
  double step_ = 0;
};

} // namespace troupe::bench
