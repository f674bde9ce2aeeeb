#pragma once

namespace troupe {

struct worker_site;

/// Starts a worker of LOCAL_SGD. Each worker trains its own replica. After a number of steps, and
/// at the end of each epoch, the replicas are averaged.
void start_local_sgd_worker(const worker_site& site);

} // namespace troupe
