#pragma once

namespace troupe {

struct shard_site;
struct worker_site;

/// Starts a worker of SSP. While the worker is too far ahead of the slowest worker, it gets no
/// weights. It then waits for a shard's notice, and pulls again.
void start_ssp_worker(const worker_site& site);

/// Starts a shard of SSP. The shard applies each gradient when it arrives, and notifies waiting
/// workers when they may pull.
void start_ssp_shard(const shard_site& site);

} // namespace troupe
