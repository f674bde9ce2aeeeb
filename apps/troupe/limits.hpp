#pragma once

#include "actors/cluster/footprint.hpp"

#include <string>
#include <vector>

namespace troupe {

/// Throws input_error if a cluster has more workers than an epoch has batches, or more shards than
/// the model has parameters, because some tasks would have no work. `workers_from` and `ps_from`
/// tell the user where the numbers come from, such as "--workers".
void check_tasks(const job_context& context, const cluster_shape& cluster,
                 const std::string& workers_from, const std::string& ps_from);

/// The memory that this process may use: the memory of the host, or less if a control group (a
/// container, a service) or `ulimit -v` limits it.
std::size_t memory_here();

/// "this would take about 8.2 TiB of memory, and this host has 62.8 GiB". Empty if there is enough
/// memory.
std::string memory_problem(std::size_t needed);

/// Throws input_error with the problem and `advice`, unless the problem is empty.
void check_memory(const std::string& problem, const std::string& advice);

/// memory_problem() for several processes on this host together: "this would take about 5.0 GiB of
/// memory for coordinator/0 (1.0 GiB), 2 workers (up to 2.0 GiB each), and this host has 4.0 GiB".
/// @param group whether they share this process's control group, and therefore its limit.
std::string memory_problem(const std::vector<task_memory>& on_host, bool group);

/// If a process of a cluster has too little memory for its tasks (`own` bytes), or its host has too
/// little memory for all tasks on it: a text that says so. Otherwise empty. Logs a warning if all
/// tasks need more than the limit of this process's control group, because they may share that
/// group.
std::string node_memory_problem(std::size_t own, const std::vector<task_memory>& on_host);

} // namespace troupe
