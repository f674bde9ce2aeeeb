#include "actors/protocols/parameter_servers.hpp"

#include "actors/parameter_server/ps_synchronizer.hpp"
#include "actors/parameter_server/reader_front.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// A shard of at most this number of parameters makes an update in about a tenth of a millisecond.
constexpr std::size_t brief_shard = std::size_t{1} << 18;
/// Adding up gradients with at most this number of elements in total also takes about a tenth of a
/// millisecond.
constexpr std::size_t brief_sum = std::size_t{1} << 20;

/// True if the shard may run on the thread that receives a gradient (spawn_brief). Such a shard
/// must be small and must not use a GPU. Its process must not contain another shard or a worker,
/// because the shard would delay them. For example, a worker in this process would start its next
/// step only after the updates from other workers.
bool is_brief(const shard_site& site, range where, bool in_step) {
  const auto shards = site.view.of(job_kind::ps);
  const auto workers = site.view.of(job_kind::worker);
  const auto own = std::ranges::find(shards, site.task, &member::task);
  if (site.updaters || own == shards.end() || where.size() > brief_shard
      || (in_step && where.size() * workers.size() > brief_sum))
    return false;
  const auto is_here = [&](auto& x) { return x.address == own->address; };
  return std::ranges::none_of(workers, is_here) && std::ranges::count_if(shards, is_here) == 1;
}

} // namespace

void start_ps_worker(const worker_site& site, ps_synchronizer_options manners,
                     const ring_node_actor& sums) {
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
  const auto one_less = [site, how, missing, sums] {
    if (--*missing > 0)
      return;
    const auto synchronizer = site.spawn_light<ps_synchronizer>(
      site.context, *how, caf::actor_cast<worker_actor>(site.worker));
    site.host(proto::SYNCHRONIZER, synchronizer);
    site.give(caf::actor_cast<synchronizer_actor>(synchronizer), sums);
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
                        const shard_reading& how) {
  shard_options options;
  options.view = site.view;
  options.index = site.task.index;
  options.where = range_of(site);
  options.board = site.board;
  options.requests = site.requests;
  options.coordinator = site.coordinator;
  options.policy = std::move(policy);
  options.in_pieces = how.in_pieces;
  options.updater = make_updates_of(*site.context, options, site.updaters);
  options.device = site.device;
  const auto versions =
    make_versions(*site.context, options.where, site.view.of(job_kind::worker).size(), how.held);
  const auto averages = make_averages(*site.context, options.where);
  if (how.gate)
    how.gate->open(versions);
  if (site.context->job.exchange_precision() == proto::BFLOAT16)
    options.rounded = std::make_shared<rounded_versions>(site.context, options.where);
  const auto reader = site.spawn_light<reader_front>(site.view.number, options.where, versions,
                                                     how.pulled, options.board, how.gate, averages,
                                                     options.policy->live(), options.rounded);
  site.host(proto::READER, reader);
  if (!options.policy->in_step() && !how.gate)
    options.reader = reader;
  options.pulled = how.pulled;
  // If workers change the weights directly (live_weights), the shard only counts updates, which
  // takes little time.
  const bool counts = options.policy->live() && !averages;
  const auto shard = counts || is_brief(site, options.where, options.policy->in_step())
    ? site.spawn_brief<parameter_shard>(site.context, options, versions, averages)
    : site.spawn_heavy<parameter_shard>(site.context, options, versions, averages);
  site.host(proto::SHARD, shard);
  return shard;
}

// Stores each actor at its index, as soon as the actor can be reached. When all actors are stored,
// the shard gets the list and is ready.
void give_listeners(const shard_site& site, const shard_shell& shard,
                    const std::vector<member>& workers, const std::vector<member>& shards) {
  if (workers.empty() && shards.empty()) {
    site.ready();
    return;
  }
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
