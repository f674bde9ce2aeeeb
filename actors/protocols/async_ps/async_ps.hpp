#pragma once

#include "actors/view.hpp"

#include <vector>

namespace troupe {

struct shard_site;
struct worker_site;

/// ASYNC_PS: a worker limits the norm of its gradients. If the job bounds staleness, the worker
/// asks shard 0 whether a gradient is too old.
void start_async_ps_worker(const worker_site& site);

/// ASYNC_PS: a shard applies each gradient when it arrives, without waiting.
void start_async_ps_shard(const shard_site& site);

/// The shards to which this shard sends its damping of the rate: all shards if this is shard 0 and
/// the protocol damps the rate; otherwise none.
std::vector<member> shards_to_inform(const shard_site& site);

} // namespace troupe
