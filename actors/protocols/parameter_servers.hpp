#pragma once

#include "actors/parameter_server/parameter_shard.hpp"
#include "actors/parameter_server/ps_synchronizer.hpp"
#include "actors/parameter_server/pulled_versions.hpp"
#include "actors/parameter_server/read_gate.hpp"
#include "actors/protocols/site.hpp"

// Code that all protocols with parameter shards share.

namespace troupe {

/// Starts a worker's ps_synchronizer once all shards and their readers can be reached.
/// @param manners the caller sets how the synchronizer treats gradients (in_step, bounded, policy,
/// admission); this function sets the other fields
/// @param sums if layers need sums over the batches of all workers: see worker_site::give
void start_ps_worker(const worker_site& site, ps_synchronizer_options manners,
                     const ring_node_actor& sums = {});

/// The range of parameters of a shard.
range range_of(const shard_site& site);

/// How workers exchange gradients and weights with a shard.
struct shard_reading {
  /// Records the versions that workers last read. Null if the policy does not need them.
  std::shared_ptr<pulled_versions> pulled = nullptr;
  /// Decides when workers may read. Null if they may read at any time.
  std::shared_ptr<read_gate> gate = nullptr;
  /// Number of versions that `pulled` and `gate` hold, so that the version pool has slots for them.
  std::size_t held = 0;
  /// See shard_options.
  bool in_pieces = false;
};

/// Starts a shard and its reader and makes them reachable. The caller reports when they are ready.
/// Throws device_error, before it starts anything, if the shard's device has too little memory.
shard_shell start_shard(const shard_site& site, std::shared_ptr<shard_policy> policy,
                        const shard_reading& how = {});

/// When all these shards and the synchronizers of all these workers can be reached, passes them to
/// the shard. Then reports that the shard is ready. Both lists may be empty.
void give_listeners(const shard_site& site, const shard_shell& shard,
                    const std::vector<member>& workers, const std::vector<member>& shards);

} // namespace troupe
