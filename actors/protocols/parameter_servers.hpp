#pragma once

#include "actors/parameter_server/parameter_shard.hpp"
#include "actors/protocols/site.hpp"

// What protocols have in common whose weights parameter shards hold.

namespace troupe {

/// Starts a worker's ps_synchronizer once all shards and their readers can be reached.
void start_ps_worker(const worker_site& site);

/// Starts a shard and its reader, and hosts both. They are not ready before the caller says so.
shard_shell start_shard(const shard_site& site);

} // namespace troupe
