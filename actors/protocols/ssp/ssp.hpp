#pragma once

namespace troupe {

struct shard_site;
struct worker_site;

/// Starts a worker of SSP. The worker waits for weights while it is too far ahead of the slowest
/// worker.
void start_ssp_worker(const worker_site& site);

/// Starts a shard of SSP. The shard applies each gradient when it arrives, and notifies waiting
/// workers when they may continue.
void start_ssp_shard(const shard_site& site);

} // namespace troupe
