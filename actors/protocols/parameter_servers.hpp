#pragma once

#include "actors/parameter_server/parameter_shard.hpp"
#include "actors/parameter_server/ps_synchronizer.hpp"
#include "actors/parameter_server/pulled_versions.hpp"
#include "actors/protocols/site.hpp"

// What protocols have in common whose weights parameter shards hold.

namespace troupe {

/// Starts a worker's ps_synchronizer once all shards and their readers can be reached.
/// @param manners how it treats gradients: in_step, limit, admission; the rest is filled in
void start_ps_worker(const worker_site& site, ps_synchronizer_options manners);

/// The parameters of a shard.
range range_of(const shard_site& site);

/// Starts a shard and its reader, and hosts both. They are not ready before the caller says so.
/// @param pulled what workers read last, where the policy needs it; else null
shard_shell start_shard(const shard_site& site, std::shared_ptr<shard_policy> policy,
                        std::shared_ptr<pulled_versions> pulled = nullptr);

} // namespace troupe
