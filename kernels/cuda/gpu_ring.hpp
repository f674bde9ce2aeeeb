#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/replica_memory.hpp"
#include "kernels/devices/device_ring.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace troupe::cuda {

/// The replicas of a ring, on GPUs that access each other's memory.
class gpu_ring final : public device_ring {
public:
  /// Opens each of these GPUs and closes it again, to check that they can access each other. Throws
  /// device_error like gpu_set::open_ring.
  gpu_ring(std::function<std::unique_ptr<device>(std::size_t)> open,
           std::span<const std::size_t> gpus);

  std::unique_ptr<device_replica> open(std::size_t rank) override;

private:
  std::function<std::unique_ptr<device>(std::size_t)> open_;
  std::vector<std::size_t> gpus_;
  std::shared_ptr<replica_ring> ring_;
};

} // namespace troupe::cuda
