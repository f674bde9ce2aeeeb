#include "actors/protocols/async_ps/async_ps.hpp"

#include "actors/protocols/async_ps/async_policy.hpp"
#include "actors/protocols/async_ps/async_worker.hpp"
#include "actors/protocols/parameter_servers.hpp"

namespace troupe {

namespace {

template <class Site>
std::size_t workers_of(const Site& site) {
  return site.view.of(job_kind::worker).size();
}

} // namespace

std::vector<member> shards_to_inform(const shard_site& site) {
  const bool damps = compensation_of(site.context->job, workers_of(site)) == proto::AsyncPs::AUTO;
  return site.task.index == 0 && damps ? site.view.of(job_kind::ps) : std::vector<member>{};
}

void start_async_ps_worker(const worker_site& site) {
  const auto& job = site.context->job;
  ps_synchronizer_options manners;
  if (compensation_of(job, workers_of(site)) == proto::AsyncPs::AUTO)
    manners.policy =
      std::make_shared<async_worker>(site.context->parameters().size(), chains_of(job, 1));
  manners.pull_ahead = job.pull_ahead();
  manners.admission = job.async_ps().has_max_staleness();
  start_ps_worker(site, std::move(manners));
}

void start_async_ps_shard(const shard_site& site) {
  const auto workers = workers_of(site);
  const auto how = compensation_of(site.context->job, workers);
  const bool compares = how == proto::AsyncPs::GAP_AWARE || how == proto::AsyncPs::DC;
  std::set<std::uint32_t> readers;
  for (auto& x : site.view.of(job_kind::worker))
    readers.insert(x.task.index);
  const std::size_t ahead = site.context->job.pull_ahead();
  const auto pulled =
    compares ? std::make_shared<pulled_versions>(std::move(readers), 1 + ahead) : nullptr;
  const auto shard = start_shard(
    site,
    std::make_shared<async_policy>(site.context, range_of(site), site.task.index, workers, pulled),
    {.pulled = pulled, .held = workers * (ahead + (pulled ? 1 + ahead : 0))});
  give_listeners(site, shard, site.view.of(job_kind::worker), shards_to_inform(site));
}

} // namespace troupe
