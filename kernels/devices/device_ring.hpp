#pragma once

#include "kernels/devices/device_replica.hpp"

#include <cstddef>
#include <memory>

namespace troupe {

/// The replicas of a ring whose ranks are all in this process, on GPUs that access each other's
/// memory. Their updaters add up the gradients there: see device_updater::add_up.
class device_ring {
public:
  device_ring() = default;
  device_ring(const device_ring&) = delete;
  device_ring& operator=(const device_ring&) = delete;
  virtual ~device_ring() = default;

  /// Opens the replica of a rank, once each. All ranks make equal updaters, in the same order. The
  /// replicas keep each other's memory alive, as long as one of them has updaters. Throws
  /// device_error if the GPU cannot be used.
  virtual std::unique_ptr<device_replica> open(std::size_t rank) = 0;
};

} // namespace troupe
