#pragma once

#include "actors/cluster/footprint.hpp"

#include <string>

namespace troupe {

/// Throws input_error if a cluster has more workers than an epoch has batches, or more shards than
/// the model has parameters: some would have nothing to do. `where` says where the numbers come
/// from, such as "--workers".
void check_tasks(const job_context& context, const cluster_shape& cluster,
                 const std::string& workers_from, const std::string& ps_from);

/// Throws input_error if all tasks on this host would need more memory than it has.
void check_memory(const footprint& needed);

} // namespace troupe
