#include "kernels/cuda/gpu_pinned_memory.hpp"

#include <utility>

namespace troupe::cuda {

namespace {

/// Makes the device the current one before memory is released. Ignores an error: the driver may
/// report an earlier failure of the GPU here, but memory can be released nevertheless.
void enter_to_release(device& gpu) noexcept {
  try {
    gpu.enter();
  } catch (const device_error&) { // an earlier failure
  }
}

} // namespace

gpu_pinned_memory::gpu_pinned_memory(std::unique_ptr<device> gpu) : gpu_(std::move(gpu)) {}

gpu_pinned_memory::~gpu_pinned_memory() {
  enter_to_release(*gpu_);
  gpu_ = nullptr;
}

void* gpu_pinned_memory::allocate(std::size_t bytes) {
  const std::lock_guard guard{mutex_};
  gpu_->enter();
  return gpu_->allocate_pinned(bytes);
}

void gpu_pinned_memory::release(void* memory) noexcept {
  const std::lock_guard guard{mutex_};
  enter_to_release(*gpu_);
  gpu_->release_pinned(memory);
}

} // namespace troupe::cuda
