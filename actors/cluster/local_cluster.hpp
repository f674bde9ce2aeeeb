#pragma once

#include "actors/cluster/cluster_node.hpp"

namespace troupe {

/// The tasks of a cluster besides its coordinator: workers 0 .. workers-1 and parameter shards 0 ..
/// ps-1.
std::vector<task_name> tasks_of(std::uint32_t workers, std::uint32_t ps);

/// A whole cluster in one node, for `sys.spawn<cluster_node>(...)` followed by a `begin_node`: all
/// actors live in one actor system, share the data in memory, and exchange payloads without copying
/// them. `setup.tasks` is filled in; `setup.context` and `setup.data` must be there, from a valid
/// job; `setup.files` where there is an output.
///
/// The caller may set `observer` and `on_end` in the result. `spawn_training` (training.hpp) does
/// all this, checks included, for programs that only want to train.
node_options local_cluster(coordinator_setup setup, std::uint32_t workers, std::uint32_t ps);

} // namespace troupe
