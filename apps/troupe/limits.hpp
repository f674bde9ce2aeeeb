#pragma once

#include "actors/cluster/footprint.hpp"

#include <string>

namespace troupe {

/// Throws input_error if a cluster has more workers than an epoch has batches, or more shards than
/// the model has parameters: some would have nothing to do. `where` says where the numbers come
/// from, such as "--workers".
void check_tasks(const job_context& context, const cluster_shape& cluster,
                 const std::string& workers_from, const std::string& ps_from);

/// Memory that this process may use at most: that of the host, less where a control group (a
/// container, a service) or `ulimit -v` limits it.
std::size_t memory_here();

/// "this would take about 8.2 TiB of memory, and this host has 62.8 GiB"; empty where it has so
/// much.
std::string memory_problem(std::size_t needed);

/// Throws input_error where this would need more memory than this host has.
/// @param advice what to do then
void check_memory(std::size_t needed, const std::string& advice);

} // namespace troupe
