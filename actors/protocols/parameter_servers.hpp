#pragma once

#include "actors/parameter_server/parameter_shard.hpp"
#include "actors/parameter_server/ps_synchronizer.hpp"
#include "actors/parameter_server/pulled_versions.hpp"
#include "actors/parameter_server/read_gate.hpp"
#include "actors/protocols/site.hpp"

// What protocols have in common whose weights parameter shards hold.

namespace troupe {

/// Starts a worker's ps_synchronizer once all shards and their readers can be reached.
/// @param manners how it treats gradients: in_step, bounded, policy, admission; the rest is filled
/// in
void start_ps_worker(const worker_site& site, ps_synchronizer_options manners);

/// The parameters of a shard.
range range_of(const shard_site& site);

/// How a shard serves workers that read.
struct shard_reading {
  /// What workers read last, where the policy needs it; else null.
  std::shared_ptr<pulled_versions> pulled = nullptr;
  /// Decides when they may read; null: at any time.
  std::shared_ptr<read_gate> gate = nullptr;
  /// Versions that these two hold.
  std::size_t held = 0;
};

/// Starts a shard and its reader, and hosts both. They are not ready before the caller says so.
shard_shell start_shard(const shard_site& site, std::shared_ptr<shard_policy> policy,
                        const shard_reading& how = {});

/// Gives the shard the synchronizers of these workers, and these shards, once they can be reached;
/// then it is ready. Either list may be empty.
void give_listeners(const shard_site& site, const shard_shell& shard,
                    const std::vector<member>& workers, const std::vector<member>& shards);

} // namespace troupe
