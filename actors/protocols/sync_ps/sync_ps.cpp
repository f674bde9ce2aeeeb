#include "actors/protocols/sync_ps/sync_ps.hpp"

#include "actors/protocols/parameter_servers.hpp"
#include "actors/protocols/ring/ring.hpp"
#include "actors/protocols/sync_ps/sync_policy.hpp"

namespace troupe {

void start_sync_ps_worker(const worker_site& site) {
  ps_synchronizer_options manners;
  manners.in_step = true;
  manners.first_decides = site.context->job.sync_ps().backup_workers() > 0;
  manners.in_pieces = site.context->protocol.in_pieces;
  const auto sums = sums_of_step(site);
  if (sums.empty()) {
    start_ps_worker(site, std::move(manners));
    return;
  }
  const auto rank = spawn_ring_node(site, {}, sums);
  site.host(proto::RING_NODE, rank);
  join_ring(site, rank, [site, manners, rank] { start_ps_worker(site, manners, rank); });
}

void start_sync_ps_shard(const shard_site& site) {
  std::vector<std::uint32_t> indices;
  for (auto& x : site.view.of(job_kind::worker))
    indices.push_back(x.task.index);
  const auto& how = site.context->job.sync_ps();
  const auto& rule = site.context->rule;
  const bool clips = rule.clip_norm > 0;
  // LAMB and updates on a GPU cannot add up gradients during the update.
  const bool whole_sums = clips || rule.by_tensor() || site.updaters;
  const auto shard = start_shard(
    site, std::make_shared<sync_policy>(range_of(site), site.task.index, indices, how, whole_sums),
    {.in_pieces = site.context->protocol.in_pieces});
  const bool shards_talk = clips || how.backup_workers() > 0;
  give_listeners(site, shard, site.view.of(job_kind::worker),
                 shards_talk ? site.view.of(job_kind::ps) : std::vector<member>{});
}

} // namespace troupe
