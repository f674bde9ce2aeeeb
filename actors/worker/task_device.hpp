#pragma once

#include "actors/model/device_placement.hpp"
#include "actors/model/job_context.hpp"
#include "actors/model/model_tester.hpp"
#include "actors/model/text_generator.hpp"
#include "actors/replica/replica_home.hpp"
#include "kernels/data/dataset.hpp"
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
  /// The device as a text for users: "GPU:0 (NVIDIA H200)", "CPU:0".
  std::string text;
  /// A notice for users: why the task uses another device than the job names (Job.soft_placement),
  /// or that a setting has no effect on this device. Empty if there is nothing to notice.
  std::string notice;
};

/// Chooses the task's device, and checks that the task can use it. With Job.soft_placement, the CPU
/// replaces a device that cannot be used.
/// @param gpus the GPUs of this host; null if the program has no code for GPUs
/// @throws device_error if the device is missing, input_error if the device cannot compute the
/// model. Both errors name the task and say what to do.
task_device choose_device(const job_context& context, const task_name& task, const gpu_set* gpus);

/// Checks the devices of a cluster before it starts. All tasks to which the job gives a device must
/// exist, GPUs must be able to compute the model, and the tasks of this host must be able to use
/// their devices (choose_device). Opens no device if no task of this host uses a GPU. Throws like
/// choose_device().
/// @param workers, ps numbers of tasks of the cluster
/// @param here the tasks on this host
void check_devices(const job_context& context, std::size_t workers, std::size_t ps,
                   const std::vector<task_name>& here, const gpu_set* gpus);

/// The decision whether the workers of a job add up their gradients on their GPUs.
struct ring_choice {
  /// Lets the GPUs read each other's memory. Null if the workers do not add up on their GPUs.
  std::shared_ptr<device_ring> ring;
  /// If the job allows the workers to add up on their GPUs, but the GPUs cannot do so: the reason.
  /// Otherwise empty.
  std::string notice;
};

/// Makes the ring_choice for a job whose workers are all in this process.
/// @param devices the workers' devices, by rank
ring_choice choose_ring(const job_context& context, const std::vector<device_name>& devices,
                        const gpu_set* gpus);

/// Decides where the worker's replica is stored, and opens the GPU's memory for it. It is stored on
/// the worker's GPU if it can stay there between steps (residence_of), otherwise in the host's
/// memory. Throws device_error.
/// @param workers number of workers of the cluster
/// @param ring the ring of all workers' GPUs (ring_choice); null if there is none
/// @param rank the worker's place in the ring
replica_home open_replica(const job_context& context, const task_name& worker,
                          const device_name& device, std::size_t workers, const gpu_set* gpus,
                          device_ring* ring = nullptr, std::size_t rank = 0);

/// Makes the executor of a worker's batches on this device. Throws device_error or input_error.
/// @param home where the worker's replica is
std::unique_ptr<device_executor> make_training_executor(const job_context& context,
                                                        const device_name& device,
                                                        const gpu_set* gpus,
                                                        const replica_home& home = {});

/// Makes the tester of evaluations on this device. Throws device_error or input_error.
std::unique_ptr<model_tester> make_tester(const job_context& context, const device_name& device,
                                          const gpu_set* gpus);

/// Makes the generator that continues texts on this device. Throws device_error or input_error.
text_generator make_generator(const job_context& context, const device_name& device,
                              const gpu_set* gpus);

/// The memory that a task needs to work on a GPU: in the GPU, and in the host for copies. 0 if the
/// task runs on the CPU, or if the program has no code for GPUs. The memory that the driver needs
/// for each process (its context) is not included.
/// @param workers, ps numbers of tasks of the cluster
/// @param in_ring see residence_of
/// @param records records like those of the task's batches, to estimate the memory of sparse
/// features; null to leave out this memory
gpu_memory device_memory(const job_context& context, const task_name& task, std::size_t workers,
                         std::size_t ps, const gpu_set* gpus, bool in_ring = false,
                         const dataset* records = nullptr);

} // namespace troupe
