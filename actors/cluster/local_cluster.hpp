#pragma once

#include "actors/cluster/cluster_node.hpp"

namespace troupe {

/// All tasks of a cluster except its coordinator: workers 0 .. workers-1 and parameter shards 0 ..
/// ps-1.
std::vector<task_name> tasks_of(std::uint32_t workers, std::uint32_t ps);

/// The options of a node that runs a whole cluster. Spawn the node with
/// `sys.spawn<cluster_node>(...)`, and then send it `begin_node`. All actors run in one actor
/// system, share the data in memory, and exchange payloads without copies. `setup` needs the
/// context and data of a valid job, and `files` if there is an output. In the result, the tasks of
/// this cluster replace `setup.tasks`.
///
/// The caller may set `observer` and `on_end` in the result. A program that only wants to train
/// uses `spawn_training` (training.hpp) instead, which does all of this and checks the input.
node_options local_cluster(coordinator_setup setup, std::uint32_t workers, std::uint32_t ps);

} // namespace troupe
