#pragma once

namespace troupe {

struct shard_site;
struct worker_site;

/// Starts a worker of SYNC_PS. The worker waits for the update of each step. If layers of the model
/// need sums over the batches of all workers (batch_norm.sync), a ring of the workers adds them up.
void start_sync_ps_worker(const worker_site& site);

/// Starts a shard of SYNC_PS. The shard adds up the gradients of a step, and notifies all workers
/// when it has applied them. If the job clips by norm, shards send each other their parts of the
/// norm. With backup workers, shard 0 tells the other shards which gradients make a step.
void start_sync_ps_shard(const shard_site& site);

} // namespace troupe
