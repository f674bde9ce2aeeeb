#pragma once

namespace troupe {

struct shard_site;
struct worker_site;

/// HOGWILD: a worker reads and writes the weights directly, in the memory of shards in its own
/// process.
void start_hogwild_worker(const worker_site& site);

/// HOGWILD: a shard shares its weights with the workers, and counts their updates.
void start_hogwild_shard(const shard_site& site);

} // namespace troupe
