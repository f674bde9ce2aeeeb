#include "actors/protocols/sync_ps/sync_ps.hpp"

#include "actors/protocols/parameter_servers.hpp"
#include "actors/protocols/sync_ps/sync_policy.hpp"

namespace troupe {

void start_sync_ps_worker(const worker_site& site) {
  ps_synchronizer_options manners;
  manners.in_step = true;
  manners.first_decides = site.context->job.sync_ps().backup_workers() > 0;
  start_ps_worker(site, std::move(manners));
}

// Each actor, once reached, is added in its place; the last one makes the shard ready.
void start_sync_ps_shard(const shard_site& site) {
  const auto workers = site.view.of(job_kind::worker);
  std::vector<std::uint32_t> indices;
  for (auto& x : workers)
    indices.push_back(x.task.index);
  const auto& how = site.context->job.sync_ps();
  const auto shard =
    start_shard(site, std::make_shared<sync_policy>(range_of(site), site.task.index, indices, how));
  const bool shards_talk = site.context->rule.clip_norm > 0 || how.backup_workers() > 0;
  const auto shards = shards_talk ? site.view.of(job_kind::ps) : std::vector<member>{};
  auto listeners = std::make_shared<step_listeners>();
  auto missing = std::make_shared<std::size_t>(workers.size() + shards.size());
  listeners->actors.resize(workers.size());
  listeners->shards.resize(shards.size());
  const auto one_less = [site, shard, listeners, missing] {
    if (--*missing > 0)
      return;
    caf::anon_send(shard, *listeners);
    site.ready();
  };
  for (std::size_t i = 0; i < workers.size(); ++i)
    site.reach<step_listener>({workers[i].task, proto::SYNCHRONIZER},
                              [listeners, one_less, i](step_listener x) {
                                listeners->actors[i] = std::move(x);
                                one_less();
                              });
  for (std::size_t i = 0; i < shards.size(); ++i)
    site.reach<shard_actor>({shards[i].task, proto::SHARD},
                            [listeners, one_less, i](shard_actor x) {
                              listeners->shards[i] = std::move(x);
                              one_less();
                            });
}

} // namespace troupe
