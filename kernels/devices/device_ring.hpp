#pragma once

#include "kernels/devices/device_replica.hpp"

#include <cstddef>
#include <memory>

namespace troupe {

/// The replicas of a ring. All ranks are in this process, and their GPUs can access each other's
/// memory. The updaters of the replicas add up the gradients in this memory: see
/// device_updater::add_up.
class device_ring {
public:
  device_ring() = default;
  device_ring(const device_ring&) = delete;
  device_ring& operator=(const device_ring&) = delete;
  virtual ~device_ring() = default;

  /// Opens the replica of a rank. Call it once for each rank. All ranks must make updaters of equal
  /// sizes, in the same order. As long as a replica has updaters, the memory of all replicas
  /// exists. Throws device_error if the GPU of this rank cannot be used, or if this GPU and the GPU
  /// of another rank cannot access each other's memory.
  virtual std::unique_ptr<device_replica> open(std::size_t rank) = 0;
};

} // namespace troupe
