#include "actors/protocols/parameter_servers.hpp"

#include "actors/parameter_server/ps_synchronizer.hpp"
#include "actors/parameter_server/reader_front.hpp"

namespace troupe {

void start_ps_worker(const worker_site& site, ps_synchronizer_options manners) {
  const auto shards = site.view.of(job_kind::ps);
  auto how = std::make_shared<ps_synchronizer_options>(std::move(manners));
  how->view = site.view.number;
  how->worker = site.task.index;
  how->incarnation = site.incarnation;
  how->requests = site.requests;
  how->board = site.board;
  how->shards.resize(shards.size());
  how->readers.resize(shards.size());
  auto missing = std::make_shared<std::size_t>(2 * shards.size());
  const auto one_less = [site, how, missing] {
    if (--*missing > 0)
      return;
    const auto synchronizer = site.spawn_light<ps_synchronizer>(
      site.context, *how, caf::actor_cast<worker_actor>(site.worker));
    site.host(proto::SYNCHRONIZER, synchronizer);
    site.give(caf::actor_cast<synchronizer_actor>(synchronizer));
  };
  for (std::size_t i = 0; i < shards.size(); ++i) {
    site.reach<shard_actor>({shards[i].task, proto::SHARD}, [how, one_less, i](shard_actor x) {
      how->shards[i] = std::move(x);
      one_less();
    });
    site.reach<reader_actor>({shards[i].task, proto::READER}, [how, one_less, i](reader_actor x) {
      how->readers[i] = std::move(x);
      one_less();
    });
  }
}

range range_of(const shard_site& site) {
  return site.context->shard(site.task.index, site.view.of(job_kind::ps).size());
}

shard_shell start_shard(const shard_site& site, std::shared_ptr<shard_policy> policy,
                        std::shared_ptr<pulled_versions> pulled) {
  shard_options how;
  how.view = site.view;
  how.index = site.task.index;
  how.where = range_of(site);
  how.board = site.board;
  how.requests = site.requests;
  how.coordinator = site.coordinator;
  how.policy = std::move(policy);
  const auto workers = site.view.of(job_kind::worker).size();
  const auto versions = make_versions(*site.context, how.where, workers, pulled ? workers : 0);
  site.host(
    proto::READER,
    site.spawn_light<reader_front>(site.view.number, how.where, versions, pulled, how.board));
  const auto shard = site.spawn_heavy<parameter_shard>(site.context, how, versions);
  site.host(proto::SHARD, shard);
  return shard;
}

} // namespace troupe
