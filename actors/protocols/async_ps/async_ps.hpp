#pragma once

#include "actors/view.hpp"

#include <vector>

namespace troupe {

struct shard_site;
struct worker_site;

/// ASYNC_PS: gradients are limited, and rejected where they are too old, as the job says.
void start_async_ps_worker(const worker_site& site);

/// ASYNC_PS: a shard applies each gradient when it arrives, and waits for nobody.
void start_async_ps_shard(const shard_site& site);

/// All shards, where this is shard 0 and damps the rate for all; else none.
std::vector<member> shards_to_tell(const shard_site& site);

} // namespace troupe
