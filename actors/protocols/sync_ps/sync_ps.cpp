#include "actors/protocols/sync_ps/sync_ps.hpp"

#include "actors/protocols/parameter_servers.hpp"
#include "actors/protocols/sync_ps/sync_policy.hpp"

namespace troupe {

void start_sync_ps_worker(const worker_site& site) {
  ps_synchronizer_options manners;
  manners.in_step = true;
  start_ps_worker(site, std::move(manners));
}

void start_sync_ps_shard(const shard_site& site) {
  std::vector<std::uint32_t> indices;
  for (auto& x : site.view.of(job_kind::worker))
    indices.push_back(x.task.index);
  const auto shard = start_shard(site, std::make_shared<sync_policy>(range_of(site), indices));
  give_listeners(site, shard,
                 site.context->rule.clip_norm > 0 ? site.view.of(job_kind::ps)
                                                  : std::vector<member>{});
}

} // namespace troupe
