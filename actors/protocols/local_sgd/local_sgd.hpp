#pragma once

namespace troupe {

struct worker_site;

/// LOCAL_SGD: each worker trains its own replica. After some steps, and at the end of each epoch,
/// the replicas are averaged.
void start_local_sgd_worker(const worker_site& site);

} // namespace troupe
