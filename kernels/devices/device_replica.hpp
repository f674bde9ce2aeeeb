#pragma once

#include "kernels/devices/device_executor.hpp"
#include "kernels/devices/device_updater.hpp"
#include "kernels/plan/plan.hpp"

#include <cstddef>
#include <memory>
#include <span>

namespace troupe {

/// A worker's copy of all weights in the memory of a GPU, with the optimizer's state. The replica
/// has updaters, which update the weights, and an executor, which runs the worker's batches. They
/// exchange weights in the memory of the GPU. They exchange gradients there, too, if
/// run_arguments::gradient and range_update::gradient are empty.
///
/// Only one thread at a time may use the updaters, and only one may use the executor. These may be
/// two different threads, but the caller must ensure that each of the following calls ends before
/// the next one begins:
/// 1. The updaters publish updates (or write weights).
/// 2. The executor takes the weights, and runs.
/// 3. The updaters stage updates with the gradient of this run.
/// Updates whose gradient is in the host's memory may be staged while the executor runs.
///
/// Updaters and executors keep the memory of the replica alive, so they may outlive the replica.
class device_replica {
public:
  device_replica() = default;
  device_replica(const device_replica&) = delete;
  device_replica& operator=(const device_replica&) = delete;
  virtual ~device_replica() = default;

  /// Returns a function that makes an updater. The updater holds updater_sizes::elements
  /// parameters, beginning with number `begin`. It can stage() updates, but not apply() them. Each
  /// parameter needs an updater, and write_weights() must be called before the first run. The
  /// function throws device_error if the GPU has too little memory.
  virtual updater_maker updaters_from(std::size_t begin) = 0;

  /// The update of one updater of this replica.
  struct staged_update {
    device_updater* updater = nullptr;
    range_update how;
  };
  /// Calls device_updater::stage() for each of these updaters. If their gradients are in the memory
  /// of the GPU, a launch updates many ranges.
  virtual void stage(std::span<const staged_update> all) = 0;

  /// Makes the executor, like gpu_set::make_executor. Call it once.
  virtual std::unique_ptr<device_executor> make_executor(std::shared_ptr<const plan> what,
                                                         std::shared_ptr<const plan> on_cpu,
                                                         const gpu_options& how = {}) = 0;
};

} // namespace troupe
