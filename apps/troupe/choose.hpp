#pragma once

#include "actors/cluster/cluster_choice.hpp"
#include "apps/troupe/commands.hpp"

namespace troupe {

/// The cluster, and the task of this process in it, from the command line, the cluster file and the
/// environment. Throws input_error.
cluster_choice choose(const task_options& x);

} // namespace troupe
