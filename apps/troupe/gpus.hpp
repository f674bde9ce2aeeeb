#pragma once

#include "kernels/devices/device_executor.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// The GPUs of this host, for node_options::gpus. Null if the program was built without code for
/// GPUs. Does not open any GPU.
/// @param chosen the numbers of the GPUs that this process may use (--devices); an empty list
/// stands for all GPUs
/// @throws input_error if a number occurs twice
std::shared_ptr<const gpu_set> gpus_here(const std::vector<std::uint32_t>& chosen = {});

} // namespace troupe
