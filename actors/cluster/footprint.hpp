#pragma once

#include "actors/model/data_builder.hpp"
#include "actors/model/job_context.hpp"
#include "messages/names.hpp"

#include <cstddef>

namespace troupe {

/// Where the tasks of a cluster live, as far as memory depends on it.
struct cluster_shape {
  std::size_t workers = 1;
  std::size_t ps = 0;
  /// Tasks live in different processes, and receive copies of what others own. In one process
  /// tensors are passed by reference, and all read the same data.
  bool separate = false;
  /// Results are written.
  bool output = false;
};

/// Memory in bytes of a task once training is under way: what its actors allocate for tensors and
/// records. Not in here: the program itself, and stacks of threads.
struct footprint {
  std::size_t weights = 0;     ///< versions of a shard or replica; copies that were pulled
  std::size_t optimizer = 0;   ///< its state
  std::size_t gradients = 0;   ///< being computed, on their way, being added up
  std::size_t activations = 0; ///< and scratch space
  std::size_t batches = 0;
  std::size_t data = 0;    ///< all records
  std::size_t network = 0; ///< pieces of messages on their way between processes

  std::size_t total() const noexcept {
    return weights + optimizer + gradients + activations + batches + data + network;
  }
  footprint& operator+=(const footprint& x) noexcept;
};

/// An estimate for one task. `data` may be empty where they are not known: then records do not
/// count. Where all tasks live in one process, the records count for the
/// coordinator alone.
footprint footprint_of(const task_name& task, const job_context& context, const job_data& data,
                       const cluster_shape& cluster);

/// Of all tasks of the cluster.
footprint footprint_of_all(const job_context& context, const job_data& data,
                           const cluster_shape& cluster);

} // namespace troupe
