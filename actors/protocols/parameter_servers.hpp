#pragma once

#include "actors/parameter_server/parameter_shard.hpp"
#include "actors/parameter_server/ps_synchronizer.hpp"
#include "actors/parameter_server/pulled_versions.hpp"
#include "actors/parameter_server/read_gate.hpp"
#include "actors/protocols/site.hpp"

// Common parts of the protocols with parameter shards.

namespace troupe {

/// Starts a worker's ps_synchronizer once all shards and their readers can be reached.
/// @param manners how it treats gradients: in_step, bounded, policy, admission; the rest is filled
/// in here
/// @param sums see worker_site::give
void start_ps_worker(const worker_site& site, ps_synchronizer_options manners,
                     const ring_node_actor& sums = {});

/// The parameters of a shard.
range range_of(const shard_site& site);

/// How a shard serves reading workers.
struct shard_reading {
  /// The versions that workers read last, if the policy needs them; otherwise null.
  std::shared_ptr<pulled_versions> pulled = nullptr;
  /// Decides when workers may read; null: at any time.
  std::shared_ptr<read_gate> gate = nullptr;
  /// Number of versions that these two hold.
  std::size_t held = 0;
};

/// Starts and hosts a shard and its reader. The caller reports when they are ready.
shard_shell start_shard(const shard_site& site, std::shared_ptr<shard_policy> policy,
                        const shard_reading& how = {});

/// Gives the shard the synchronizers of these workers, and these shards, once they can be reached;
/// then it is ready. Either list may be empty.
void give_listeners(const shard_site& site, const shard_shell& shard,
                    const std::vector<member>& workers, const std::vector<member>& shards);

} // namespace troupe
