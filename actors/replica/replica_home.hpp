#pragma once

#include "kernels/devices/device_replica.hpp"
#include "messages/residence.hpp"

#include <memory>
#include <string>

namespace troupe {

/// Where a worker keeps its replica between steps.
struct replica_home {
  /// The replica on the GPU. Null if the replica is in the host's memory (residence::host).
  std::shared_ptr<device_replica> gpu;
  residence where = residence::host;
  /// True if all ranks of the ring add up their gradients on their GPUs (device_ring).
  bool in_ring = false;
  /// The worker and its device, for errors: "worker/0 on GPU:1".
  std::string device;
};

} // namespace troupe
