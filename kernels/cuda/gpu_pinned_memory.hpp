#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/devices/pinned_memory.hpp"

#include <cstddef>
#include <memory>
#include <mutex>

namespace troupe::cuda {

/// See pinned_memory. Uses a device object of its own.
class gpu_pinned_memory final : public pinned_memory {
public:
  explicit gpu_pinned_memory(std::unique_ptr<device> gpu);
  ~gpu_pinned_memory() override;

  void* allocate(std::size_t bytes) override;
  void release(void* memory) noexcept override;

private:
  std::mutex mutex_;
  std::unique_ptr<device> gpu_;
};

} // namespace troupe::cuda
