#include "actors/protocols/local_sgd/local_sgd.hpp"

#include "actors/protocols/local_sgd/local_sgd_synchronizer.hpp"
#include "actors/protocols/ring/ring.hpp"
#include "actors/protocols/site.hpp"
#include "actors/replica/replica_store.hpp"

#include <memory>

namespace troupe {

void start_local_sgd_worker(const worker_site& site) {
  local_sgd_options how;
  how.replica = std::make_shared<replica_store>(site.context, 0, 1, site.replica);
  how.view = site.view;
  how.worker = site.task.index;
  how.rank = site.rank();
  how.ring =
    spawn_ring_node(site, local_sgd_sizes(*site.context, site.view.of(job_kind::worker).size()));
  how.requests = site.requests;
  if (site.context->job.has_checkpoint() || site.context->job.has_evaluate())
    how.coordinator = site.coordinator;
  const auto synchronizer = site.spawn_heavy<local_sgd_synchronizer>(
    site.context, how, caf::actor_cast<worker_actor>(site.worker));
  site.host(proto::RING_NODE, synchronizer, site.left());
  site.host(proto::SYNCHRONIZER, synchronizer);
  site.host(proto::READER, synchronizer);
  join_ring(site, how.ring,
            [site, synchronizer] { site.give(caf::actor_cast<synchronizer_actor>(synchronizer)); });
}

} // namespace troupe
