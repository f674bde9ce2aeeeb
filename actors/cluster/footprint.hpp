#pragma once

#include "actors/model/data_builder.hpp"
#include "actors/model/job_context.hpp"
#include "messages/names.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace troupe {

/// The placement of a cluster's tasks, as far as memory depends on it.
struct cluster_shape {
  std::size_t workers = 1;
  std::size_t ps = 0;
  /// Tasks run in different processes and receive copies of each other's tensors. In one process,
  /// tensors are passed by reference and all tasks share the data.
  bool separate = false;
  /// The run writes results.
  bool output = false;
};

/// Memory in bytes of a task during training: what its actors allocate for tensors and records. It
/// leaves out the program itself and the stacks of threads.
struct footprint {
  std::size_t weights = 0;     ///< versions of a shard or replica; pulled copies
  std::size_t optimizer = 0;   ///< its state
  std::size_t gradients = 0;   ///< computed, in transit, or summed
  std::size_t activations = 0; ///< and scratch space
  std::size_t batches = 0;
  std::size_t data = 0;    ///< all records
  std::size_t network = 0; ///< pieces of messages in transit between processes

  std::size_t total() const noexcept {
    return weights + optimizer + gradients + activations + batches + data + network;
  }
  footprint& operator+=(const footprint& x) noexcept;
};

/// An estimate for one task. `data` may be empty if unknown: records then do not count. If all
/// tasks run in one process, records count only for the coordinator.
footprint footprint_of(const task_name& task, const job_context& context, const job_data& data,
                       const cluster_shape& cluster);

/// Memory in bytes that a task needs.
struct task_memory {
  task_name task;
  std::size_t bytes = 0;
};

/// The totals of `footprint_of` for several tasks.
std::vector<task_memory> memory_of(const std::vector<task_name>& tasks, const job_context& context,
                                   const job_data& data, const cluster_shape& cluster);

/// The sum.
std::size_t total_of(const std::vector<task_memory>& x) noexcept;

/// The tasks of a cluster on the host of `task`, in order, `task` included. Tasks are on one host
/// if their addresses ("host:port") name the same one, or both name loopback. Addresses of
/// loopback in a cluster whose coordinator has another one, and 0.0.0.0, do not name a host.
std::vector<task_name> tasks_beside(const std::map<task_name, std::string>& cluster,
                                    const task_name& task);

/// The sum over all tasks of the cluster.
footprint footprint_of_all(const job_context& context, const job_data& data,
                           const cluster_shape& cluster);

} // namespace troupe
