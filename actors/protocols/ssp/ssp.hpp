#pragma once

namespace troupe {

struct shard_site;
struct worker_site;

/// SSP: a worker that is too far ahead of the slowest one waits for weights.
void start_ssp_worker(const worker_site& site);

/// SSP: a shard applies each gradient when it arrives, and notifies waiting workers when they can
/// continue.
void start_ssp_shard(const shard_site& site);

} // namespace troupe
