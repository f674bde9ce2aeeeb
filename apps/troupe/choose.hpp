#pragma once

#include "actors/cluster/cluster_choice.hpp"
#include "apps/troupe/commands.hpp"

namespace troupe {

/// The cluster and task that the command line, the cluster file and the environment name. Throws
/// input_error.
cluster_choice choose(const task_options& x);

} // namespace troupe
