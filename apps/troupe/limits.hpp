#pragma once

#include "actors/cluster/footprint.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace troupe {

/// Throws input_error if some tasks of a cluster would have no work, because the cluster has more
/// workers than an epoch has batches, or more parameter servers than the model has parameters.
/// @param workers_from the option or file that sets the number of workers, such as "--workers"; the
/// error names it
/// @param ps_from the same for parameter servers
void check_tasks(const job_context& context, const cluster_shape& cluster,
                 const std::string& workers_from, const std::string& ps_from);

/// Throws input_error if a file cannot be written or replaced, so that the user learns this before
/// the work. Devices and pipes are refused, because a file_writer would replace them.
/// @param option the option that names the file, such as "--output"
void check_writable(const std::string& option, const std::filesystem::path& file,
                    const std::string& advice);

/// The memory in bytes that this process may use: the memory of the host, or a lower limit from a
/// control group (a container, a service) or from `ulimit -v`.
std::size_t memory_here();

/// Says that this host has fewer than `needed` bytes, such as "this would take about 8.2 TiB of
/// memory, and this host has 62.8 GiB". Empty if there is enough memory.
std::string memory_problem(std::size_t needed);

/// Throws input_error with the problem and `advice`. Does nothing if the problem is empty.
void check_memory(const std::string& problem, const std::string& advice);

/// Like memory_problem(needed), with the sum of several processes on this host: "this would take
/// about 5.0 GiB of memory for coordinator/0 (1.0 GiB), 2 workers (up to 2.0 GiB each), and this
/// host has 4.0 GiB".
/// @param group true if the processes share this process's control group, and therefore its limit
std::string memory_problem(const std::vector<task_memory>& on_host, bool group);

/// Describes a lack of memory on the host of a node: too little for the node's own tasks (`own`
/// bytes), or too little for all tasks on this host. Empty if there is enough. Then logs a warning
/// if all tasks together need more than the limit of this process's control group, because they may
/// be in the same group.
std::string node_memory_problem(std::size_t own, const std::vector<task_memory>& on_host);

} // namespace troupe
