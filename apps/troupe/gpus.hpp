#pragma once

#include "actors/model/job_context.hpp"
#include "kernels/devices/device_executor.hpp"

#include <cstddef>
#include <memory>

namespace troupe {

/// The GPUs of this host, as node_options::gpus: null if the program has no code for GPUs. Opens
/// none.
std::shared_ptr<const gpu_set> gpus_here();

/// Bytes that a worker of this job needs of a GPU's memory; 0 if the program has no code for GPUs.
std::size_t gpu_memory(const job_context& context);

} // namespace troupe
