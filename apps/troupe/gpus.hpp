#pragma once

#include "kernels/devices/device_executor.hpp"

#include <memory>

namespace troupe {

/// The GPUs of this host, as node_options::gpus: null if the program has no code for GPUs. Opens
/// none.
std::shared_ptr<const gpu_set> gpus_here();

} // namespace troupe
