#pragma once

#include "apps/troupe/bench/runner.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/executor.hpp"
#include "kernels/cuda/replica_memory.hpp"
#include "kernels/cuda/updater.hpp"
#include "kernels/devices/device_updater.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe::bench {

/// The plan (the instructions of a training step) of a work on a GPU, with the buckets (parts of
/// the gradient) of a job.
std::shared_ptr<const plan> gpu_training_plan(const work& what, dtype precision);

/// Trains a work on a GPU like the worker of a job whose weights, gradients and optimizer's state
/// stay in the GPU's memory (kernels/devices/device_replica.hpp). There is an updater for each
/// bucket. A step copies the newest weights from the updaters to the executor, runs a CUDA graph,
/// and stages and publishes an update. The batch of a step is copied from pinned memory while the
/// previous step is computed. The loss of each step is copied to the host.
///
/// There is one difference from a job: the executor and the updaters use the same stream.
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
  /// A copy of material::features. It lives longer than the executor, which may still copy from it.
  cuda::buffer<float, cuda::memory_kind::pinned> features_;
  /// The memory that the executor and the updaters share.
  std::shared_ptr<cuda::replica_memory> replica_;
  cuda::executor executor_;
  struct bucket {
    std::vector<update_part> parts;
    std::unique_ptr<cuda::updater> updates;
  };
  std::vector<bucket> buckets_;
  std::uint64_t steps_ = 0;
};

} // namespace troupe::bench
