#pragma once

namespace troupe {

struct shard_site;
struct worker_site;

/// Starts a worker of HOGWILD. The worker reads and writes the weights directly, in the memory of
/// the shards in its own process.
void start_hogwild_worker(const worker_site& site);

/// Starts a shard of HOGWILD. The shard shares its weights with the workers, and counts their
/// updates.
void start_hogwild_shard(const shard_site& site);

} // namespace troupe
