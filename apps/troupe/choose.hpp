#pragma once

#include "actors/cluster/cluster_choice.hpp"
#include "apps/troupe/commands.hpp"

namespace troupe {

/// Determines the cluster and this process's task from the command line, the cluster file and the
/// environment (TF_CONFIG). Throws input_error.
cluster_choice choose(const task_options& x);

} // namespace troupe
