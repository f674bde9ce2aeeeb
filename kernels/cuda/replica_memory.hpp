#pragma once

#include "kernels/cuda/device.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace troupe::cuda {

/// What the updaters and the executor of a device_replica share. The order of their calls
/// (device_replica) also orders the accesses to it.
struct replica_memory {
  /// The newest weights of an updater: parameters [begin, begin + size).
  struct part {
    std::size_t begin = 0;
    std::size_t size = 0;
    const float* weights = nullptr;
  };

  explicit replica_memory(std::shared_ptr<device> where)
    : updates(std::move(where)), updated(updates->make_event()) {}
  replica_memory(const replica_memory&) = delete;
  replica_memory& operator=(const replica_memory&) = delete;
  /// The executor's work reads weights, so it ends first.
  ~replica_memory();

  /// Of the updaters.
  std::shared_ptr<device> updates;
  std::vector<part> parts;
  /// The end of all updates so far.
  std::unique_ptr<event> updated;
  /// Buffers of updaters that are gone.
  std::vector<buffer<float>> weights;
  /// The executor and its device, once there is one, and its gradient.
  std::shared_ptr<void> runs;
  const float* gradient = nullptr;
};

} // namespace troupe::cuda
