#pragma once

#include "kernels/devices/device_executor.hpp"
#include "kernels/devices/device_updater.hpp"
#include "kernels/plan/plan.hpp"

#include <cstddef>
#include <memory>

namespace troupe {

/// A worker's copy of all weights in the memory of a GPU, with the optimizer's state. Its updaters
/// and the executor of the worker's batches exchange weights, and perhaps gradients, in that
/// memory.
///
/// The updaters belong to one thread at a time, and so does the executor. It may be another thread,
/// but these calls must come one after the other, each before the next one begins:
/// 1. updates are published (or weights written);
/// 2. the executor takes the weights, and runs;
/// 3. updates with the gradient of that run are staged.
/// Updates with a gradient of the host may be staged while the executor runs.
///
/// Updaters and executors keep its memory alive, so they may outlive it.
class device_replica {
public:
  device_replica() = default;
  device_replica(const device_replica&) = delete;
  device_replica& operator=(const device_replica&) = delete;
  virtual ~device_replica() = default;

  /// Makes updaters that hold parameters from `begin` on. They only stage() updates. Each parameter
  /// needs one, whose weights are written before the first run. Throws device_error if the GPU has
  /// too little memory.
  virtual updater_maker updaters_from(std::size_t begin) = 0;

  /// Like gpu_set::make_executor. Once.
  virtual std::unique_ptr<device_executor> make_executor(std::shared_ptr<const plan> what,
                                                         std::shared_ptr<const plan> on_cpu,
                                                         const gpu_options& how = {}) = 0;
};

} // namespace troupe
