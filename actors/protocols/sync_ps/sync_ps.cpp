#include "actors/protocols/sync_ps/sync_ps.hpp"

#include "actors/protocols/parameter_servers.hpp"

namespace troupe {

// Each actor, once reached, is added in its place; the last one makes the shard ready.
void start_sync_ps_shard(const shard_site& site) {
  const auto shard = start_shard(site);
  const auto workers = site.view.of(job_kind::worker);
  const auto shards =
    site.context->rule.clip_norm > 0 ? site.view.of(job_kind::ps) : std::vector<member>{};
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
