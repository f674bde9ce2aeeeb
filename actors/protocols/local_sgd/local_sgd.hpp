#pragma once

namespace troupe {

struct worker_site;

/// LOCAL_SGD: each worker trains a replica of its own; after some steps, and at the end of each
/// epoch, the replicas are averaged.
void start_local_sgd_worker(const worker_site& site);

} // namespace troupe
