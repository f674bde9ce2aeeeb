#pragma once

#include "actors/model/device_placement.hpp"
#include "actors/model/job_context.hpp"
#include "actors/model/model_tester.hpp"
#include "actors/model/text_generator.hpp"
#include "actors/replica/replica_home.hpp"
#include "kernels/devices/device_executor.hpp"
#include "kernels/devices/device_replica.hpp"
#include "kernels/devices/device_ring.hpp"
#include "messages/names.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// The device that a task uses: a worker for gradients, a parameter server for updates, the
/// coordinator or an evaluator for evaluations.
struct task_device {
  device_name device;
  /// A text for users: "GPU:0 (NVIDIA H200)", "CPU:0".
  std::string text;
  /// What a user should know: why it is another device than the job names (Job.soft_placement), or
  /// that a setting has no effect on it. Otherwise empty.
  std::string notice;
};

/// Opens the task's device. `gpus` are those of this host; null if the program has no code for
/// GPUs. With Job.soft_placement, the CPU takes the place of a device that cannot be used.
/// @throws device_error if the device is missing, input_error if it cannot compute the model. Both
/// name the task and say what to do.
task_device choose_device(const job_context& context, const task_name& task, const gpu_set* gpus);

/// Checks the devices of a cluster before it starts: all tasks that the job places exist, GPUs can
/// compute the model, and the devices of this host's tasks can be used (choose_device). Opens no
/// device if no task of this host uses a GPU.
/// @param workers, ps numbers of tasks of the cluster
/// @param here the tasks of this host
void check_devices(const job_context& context, std::size_t workers, std::size_t ps,
                   const std::vector<task_name>& here, const gpu_set* gpus);

/// Says whether the workers of a job add up their gradients on their GPUs.
struct ring_choice {
  /// The GPUs' access to each other's memory; null if the workers do not add up on their GPUs.
  std::shared_ptr<device_ring> ring;
  /// If only the GPUs prevent this: the reason. Otherwise empty.
  std::string notice;
};

/// Makes this choice for workers that are all in this process.
/// @param devices of the workers, by rank
ring_choice choose_ring(const job_context& context, const std::vector<device_name>& devices,
                        const gpu_set* gpus);

/// Decides where the worker's replica is stored: on this device if it can stay there between steps
/// (residence_of), otherwise in the host's memory. Throws device_error.
/// @param workers number of workers of the cluster
/// @param ring of all workers; may be null
/// @param rank the worker's place in the ring
replica_home open_replica(const job_context& context, const task_name& worker,
                          const device_name& device, std::size_t workers, const gpu_set* gpus,
                          device_ring* ring = nullptr, std::size_t rank = 0);

/// Makes the executor of a worker's batches on this device. Throws device_error or input_error.
/// @param replica the worker's replica there; null if it is in the host's memory
std::unique_ptr<device_executor> make_training_executor(const job_context& context,
                                                        const device_name& device,
                                                        const gpu_set* gpus,
                                                        device_replica* replica = nullptr);

/// Makes the tester of evaluations on this device. Throws device_error or input_error.
std::unique_ptr<model_tester> make_tester(const job_context& context, const device_name& device,
                                          const gpu_set* gpus);

/// Makes the generator that continues texts on this device. Throws device_error or input_error.
text_generator make_generator(const job_context& context, const device_name& device,
                              const gpu_set* gpus);

/// The memory that a task allocates for its GPU, without sparse records. 0 if the task runs on the
/// CPU, or if the program has no code for GPUs.
/// @param workers, ps numbers of tasks of the cluster
/// @param in_ring see residence_of
gpu_memory device_memory(const job_context& context, const task_name& task, std::size_t workers,
                         std::size_t ps, const gpu_set* gpus, bool in_ring = false);

} // namespace troupe
