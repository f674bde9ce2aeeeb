#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/devices/device_executor.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace troupe::cuda {

/// The GPUs that `open` opens by number. Each executor opens its GPU again, to have its own streams
/// and work space of cuBLAS.
std::unique_ptr<gpu_set> make_gpus(std::function<std::unique_ptr<device>(std::size_t)> open);

/// The same for some GPUs of the machine, in this order and numbered from 0, as
/// CUDA_VISIBLE_DEVICES does. Empty: all of them.
std::unique_ptr<gpu_set> make_gpus(std::function<std::unique_ptr<device>(std::size_t)> open,
                                   std::vector<std::uint32_t> chosen);

} // namespace troupe::cuda
