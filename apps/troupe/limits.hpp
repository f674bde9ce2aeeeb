#pragma once

#include "actors/cluster/footprint.hpp"

#include <string>

namespace troupe {

/// Throws input_error if a cluster has more workers than an epoch has batches, or more shards than
/// the model has parameters: some would have no work. `workers_from` and `ps_from` tell the user
/// the origin of the numbers, such as "--workers".
void check_tasks(const job_context& context, const cluster_shape& cluster,
                 const std::string& workers_from, const std::string& ps_from);

/// The memory that this process may use: that of the host, or less if a control group (a container,
/// a service) or `ulimit -v` limits it.
std::size_t memory_here();

/// "this would take about 8.2 TiB of memory, and this host has 62.8 GiB". Empty if there is enough
/// memory.
std::string memory_problem(std::size_t needed);

/// Throws input_error if this needs more memory than this process may use.
/// @param advice what the user can do about it
void check_memory(std::size_t needed, const std::string& advice);

} // namespace troupe
