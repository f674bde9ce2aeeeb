#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/devices/device_executor.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace troupe::cuda {

/// Makes the gpu_set of all GPUs of this machine. `open` opens a GPU by its number. Each executor
/// opens its GPU again, so it has its own streams and its own work space of cuBLAS.
std::unique_ptr<gpu_set> make_gpus(std::function<std::unique_ptr<device>(std::size_t)> open);

/// Makes a gpu_set of only some GPUs of the machine. `chosen` contains their numbers. The gpu_set
/// numbers these GPUs from 0, in this order, like CUDA_VISIBLE_DEVICES. If `chosen` is empty, the
/// gpu_set contains all GPUs.
std::unique_ptr<gpu_set> make_gpus(std::function<std::unique_ptr<device>(std::size_t)> open,
                                   std::vector<std::uint32_t> chosen);

} // namespace troupe::cuda
