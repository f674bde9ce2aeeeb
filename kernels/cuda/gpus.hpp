#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/devices/device_executor.hpp"

#include <cstddef>
#include <functional>
#include <memory>

namespace troupe::cuda {

/// The GPUs that `open` opens by number. Each executor opens its GPU again, to have its own stream
/// and cuBLAS.
std::unique_ptr<gpu_set> make_gpus(std::function<std::unique_ptr<device>(std::size_t)> open);

} // namespace troupe::cuda
