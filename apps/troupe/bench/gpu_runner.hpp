#pragma once

#include "apps/troupe/bench/runner.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/executor.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::bench {

/// The plan (the instructions of a training step) of a work on a GPU. With `whole`, all gradients
/// are one bucket (a part of the gradient that is sent as a unit). A step is then one CUDA graph.
std::shared_ptr<const plan> gpu_training_plan(const work& what, dtype precision, bool whole);

/// Trains a work on a GPU. Weights, gradients and the optimizer's state stay in the GPU's memory.
/// Each step is a CUDA graph and an update. The batch of a step is copied from pinned memory while
/// the previous step is computed. The loss of each step is copied to the host.
class gpu_runner {
public:
  /// Throws device_error if the memory of the GPU is too small.
  gpu_runner(cuda::device& gpu, const work& what, dtype precision, const material& data);

  /// Makes this number of steps. The seconds are measured on the GPU, from the beginning of the
  /// first step to the end of the last.
  round run(std::size_t steps);

private:
  double step();
  /// The features and labels of a batch. Features are in pinned memory.
  std::array<feed<float>, 2> feeds(std::size_t batch) const;

  cuda::device& gpu_;
  const work& what_;
  const material& data_;
  std::vector<const float*> pointers_;
  /// A copy of material::features. It lives longer than the executor, which may still copy from it.
  cuda::buffer<float, cuda::memory_kind::pinned> features_;
  cuda::executor executor_;
  cuda::buffer<float> state_;
  std::uint64_t steps_ = 0;
};

} // namespace troupe::bench
