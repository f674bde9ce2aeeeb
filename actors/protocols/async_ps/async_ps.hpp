#pragma once

#include "actors/view.hpp"

#include <vector>

namespace troupe {

struct shard_site;
struct worker_site;

/// Starts a worker of ASYNC_PS. The worker limits the norm of its gradients. If the job limits
/// staleness, the worker asks shard 0 whether a gradient is too stale.
void start_async_ps_worker(const worker_site& site);

/// Starts a shard of ASYNC_PS. The shard applies each gradient when it arrives.
void start_async_ps_shard(const shard_site& site);

/// The shards to which this shard sends the factor by which it damps the learning rate
/// (async_pacing). If the job damps the rate, shard 0 sends it to all shards. Otherwise the list is
/// empty.
std::vector<member> shards_to_inform(const shard_site& site);

} // namespace troupe
