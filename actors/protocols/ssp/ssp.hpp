#pragma once

namespace troupe {

struct shard_site;
struct worker_site;

/// SSP: a worker waits for weights if it is too far ahead of the slowest.
void start_ssp_worker(const worker_site& site);

/// SSP: a shard applies each gradient when it arrives, and tells waiting workers when they can
/// continue.
void start_ssp_shard(const shard_site& site);

} // namespace troupe
