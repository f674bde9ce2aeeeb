#include "actors/protocols/hogwild/hogwild.hpp"

#include "actors/link/port.hpp"
#include "actors/protocols/hogwild/hogwild_policy.hpp"
#include "actors/protocols/parameter_servers.hpp"

namespace troupe {

void start_hogwild_worker(const worker_site& site) {
  ps_synchronizer_options manners;
  manners.writes = true;
  start_ps_worker(site, std::move(manners));
}

void start_hogwild_shard(const shard_site& site) {
  const auto weights = std::make_shared<live_weights>(*site.context, range_of(site));
  start_shard(
    site, std::make_shared<hogwild_policy>(site.context, range_of(site), site.task.index, weights));
  const auto workers = site.view.of(job_kind::worker);
  auto missing = std::make_shared<std::size_t>(workers.size());
  for (auto& x : workers)
    site.reach<step_listener>(
      {x.task, proto::SYNCHRONIZER}, [site, weights, missing, name = x.task](step_listener worker) {
        if (is_port(worker)) {
          site.node->task_ready(
            site.task,
            "protocol hogwild needs all workers in the process of the "
            "parameter servers, and "
              + to_string(name)
              + " is in another one; use `troupe train` without --processes, or "
                "protocol: ASYNC_PS");
          return;
        }
        caf::anon_send(caf::actor_cast<caf::actor>(worker),
                       shared_weights{site.task.index, weights});
        if (--*missing == 0)
          site.ready();
      });
}

} // namespace troupe
