#pragma once

#include "actors/model/data_builder.hpp"
#include "actors/model/job_context.hpp"
#include "messages/names.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace troupe {

/// The number and placement of a cluster's tasks, as far as they affect memory.
struct cluster_shape {
  std::size_t workers = 1;
  std::size_t ps = 0;
  /// True if tasks run in different processes and receive copies of each other's tensors. False if
  /// all tasks run in one process: tensors are then passed by reference, and all tasks share the
  /// data.
  bool separate = false;
  /// True if the run writes results to a directory.
  bool output = false;
};

/// Memory of a task during training in bytes: everything that its actors allocate for tensors and
/// records. It does not include the program itself and the stacks of threads.
struct footprint {
  std::size_t weights = 0;     ///< versions of a shard or replica; pulled copies
  std::size_t optimizer = 0;   ///< the state of the optimizer
  std::size_t gradients = 0;   ///< computed, in transit, or summed
  std::size_t activations = 0; ///< activations and scratch space
  std::size_t batches = 0;
  std::size_t data = 0;    ///< all records
  std::size_t network = 0; ///< pieces of messages in transit between processes
  /// Page-locked memory, for copies from and to a GPU. footprint_of() leaves this 0;
  /// device_memory() estimates it.
  std::size_t pinned = 0;

  std::size_t total() const noexcept {
    return weights + optimizer + gradients + activations + batches + data + network + pinned;
  }
  footprint& operator+=(const footprint& x) noexcept;
};

/// True if the workers will add up their gradients on their GPUs (device_ring). This assumes that
/// the GPUs can access each other's memory.
bool adds_on_gpus(const job_context& context, const cluster_shape& cluster);

/// Estimates the memory of one task. If `data` is empty, the memory of the records is not counted.
/// If all tasks run in one process, only the coordinator's estimate contains the records.
footprint footprint_of(const task_name& task, const job_context& context, const job_data& data,
                       const cluster_shape& cluster);

/// The memory that a task needs, in bytes.
struct task_memory {
  task_name task;
  std::size_t bytes = 0;
};

/// The total of `footprint_of` for each of these tasks.
std::vector<task_memory> memory_of(const std::vector<task_name>& tasks, const job_context& context,
                                   const job_data& data, const cluster_shape& cluster);

/// The sum over these tasks, in bytes.
std::size_t total_of(const std::vector<task_memory>& x) noexcept;

/// The tasks of a cluster that run on the host of `task`, in order, including `task` itself. Two
/// tasks run on one host if their addresses ("host:port") name the same host. All loopback
/// addresses name one host, if the coordinator's address is also a loopback address. Otherwise, a
/// loopback address says nothing about the host. Nor does 0.0.0.0.
std::vector<task_name> tasks_beside(const std::map<task_name, std::string>& cluster,
                                    const task_name& task);

/// The sum of `footprint_of` over all tasks of the cluster.
footprint footprint_of_all(const job_context& context, const job_data& data,
                           const cluster_shape& cluster);

} // namespace troupe
