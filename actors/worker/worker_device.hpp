#pragma once

#include "actors/model/device_placement.hpp"
#include "actors/model/job_context.hpp"
#include "kernels/devices/device_executor.hpp"
#include "messages/names.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// The device that a worker computes on.
struct worker_device {
  device_name device;
  /// For people: "GPU:0 (NVIDIA H200)", "CPU:0".
  std::string text;
  /// The reason, if this is not the device that the job names (Job.soft_placement).
  std::string notice;
};

/// Opens the worker's device. `gpus`: the GPUs of this host; null if the program was built without
/// code for GPUs. With Job.soft_placement, the CPU replaces a device that cannot be used.
/// @throws device_error if the device is missing, input_error if it cannot compute the model. Both
/// name the worker and say what to do.
worker_device choose_device(const job_context& context, std::uint32_t worker, const gpu_set* gpus);

/// The workers among these tasks, by index.
std::vector<std::uint32_t> workers_among(const std::vector<task_name>& tasks);

/// Checks the devices of a cluster before it starts: all workers that the job places exist, GPUs
/// can compute the model, and this host has the devices of its workers (choose_device). Opens
/// nothing if no worker computes on a GPU.
/// @param workers number of workers of the cluster
/// @param here the workers of this host
void check_devices(const job_context& context, std::size_t workers,
                   const std::vector<std::uint32_t>& here, const gpu_set* gpus);

/// Makes the executor of a worker's batches on this device. Throws device_error or input_error.
std::unique_ptr<device_executor>
make_training_executor(const job_context& context, const device_name& device, const gpu_set* gpus);

} // namespace troupe
