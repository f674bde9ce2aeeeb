#include "actors/protocols/ssp/ssp.hpp"

#include "actors/protocols/async_ps/async_policy.hpp"
#include "actors/protocols/async_ps/async_ps.hpp"
#include "actors/protocols/async_ps/async_worker.hpp"
#include "actors/protocols/parameter_servers.hpp"
#include "actors/protocols/ssp/ssp_policy.hpp"

namespace troupe {

namespace {

/// Number of versions that step_clocks keeps for workers that read them later, with this staleness
/// bound.
constexpr std::size_t kept_versions(std::uint64_t bound) {
  return bound == 0 ? 2 : 0;
}

} // namespace

void start_ssp_worker(const worker_site& site) {
  const auto workers = site.view.of(job_kind::worker).size();
  ps_synchronizer_options manners;
  const auto& job = site.context->job;
  if (compensation_of(job, workers) == proto::AsyncPs::AUTO)
    manners.policy =
      std::make_shared<async_worker>(site.context->parameters().size(), chains_of(job, 1));
  manners.bounded = true;
  manners.pull_ahead = job.pull_ahead();
  start_ps_worker(site, std::move(manners));
}

void start_ssp_shard(const shard_site& site) {
  const auto bound = site.context->job.ssp().staleness();
  const auto ahead = site.context->job.pull_ahead();
  const auto workers = site.view.of(job_kind::worker).size();
  const auto clocks = std::make_shared<step_clocks>(bound, ahead);
  const auto policy =
    std::make_shared<ssp_policy>(site.context, range_of(site), site.task.index, workers, clocks);
  const auto shard =
    start_shard(site, policy, {.gate = clocks, .held = kept_versions(bound) + workers * ahead});
  give_listeners(site, shard, site.view.of(job_kind::worker), shards_to_inform(site));
}

} // namespace troupe
