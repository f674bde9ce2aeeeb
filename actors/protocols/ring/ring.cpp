#include "actors/protocols/ring/ring.hpp"

#include "actors/protocols/site.hpp"
#include "actors/ring/ring_synchronizer.hpp"
#include "kernels/cpu/executor.hpp"

#include <algorithm>
#include <numeric>

namespace troupe {

namespace {

/// For gradients of at most this number of elements, the sum and the update take about a tenth of a
/// millisecond.
constexpr std::size_t brief_ring = std::size_t{1} << 18;

/// True if the ring's actors need no threads of their own, and run on the threads that bring their
/// messages. The model must be small: waking a thread for each bucket then takes longer than the
/// work. This process must have at most two ranks, because a single thread may do the work of all
/// ranks in the process.
bool is_brief(std::size_t elements, const worker_site& site) {
  const auto workers = site.view.of(job_kind::worker);
  const auto& own = workers[site.rank()].address;
  return elements <= brief_ring && std::ranges::count(workers, own, &member::address) <= 2;
}

template <class Actor, class... Args>
auto spawn_for(std::size_t elements, const worker_site& site, Args&&... args) {
  return is_brief(elements, site) ? site.spawn_brief<Actor>(std::forward<Args>(args)...)
                                  : site.spawn_heavy<Actor>(std::forward<Args>(args)...);
}

} // namespace

ring_node_actor spawn_ring_node(const worker_site& site, std::vector<std::size_t> sizes,
                                const std::vector<std::size_t>& sums, bool adds_later) {
  auto place = place_of(*site.context, site.rank(), site.view.of(job_kind::worker).size(),
                        site.replica.in_ring);
  place.adds_later = adds_later;
  const auto elements = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  return spawn_for<ring_node>(elements, site, site.view.number, place, std::move(sizes), site.board,
                              sums);
}

std::vector<std::size_t> sums_of_step(const worker_site& site) {
  std::vector<std::size_t> result;
  if (site.view.of(job_kind::worker).size() == 1)
    return result;
  const auto of_batch = sums_over_workers(*site.context->training);
  for (std::uint32_t i = 0; i < site.context->job.accumulate(); ++i)
    result.insert(result.end(), of_batch.begin(), of_batch.end());
  return result;
}

void join_ring(const worker_site& site, const ring_node_actor& rank, std::function<void()> then) {
  const auto workers = site.view.of(job_kind::worker);
  // The left neighbour needs a link to this node. If this node must open the link, reach() does so.
  const auto left = site.left().task;
  site.reach<caf::actor>({left, proto::RING_NODE}, [rank, left](const caf::actor& x) {
    caf::anon_send(rank, left_neighbour{left, x});
  });
  const auto right = workers[(site.rank() + 1) % workers.size()].task;
  site.reach<ring_actor>({right, proto::RING_NODE}, [rank, right, left, then](ring_actor x) {
    caf::anon_send(rank, ring_neighbour{right, std::move(x), left});
    then();
  });
}

void start_ring_worker(const worker_site& site) {
  ring_synchronizer_options how;
  how.replica = make_replica(
    site.context, place_of(*site.context, site.rank(), site.view.of(job_kind::worker).size()),
    site.replica);
  std::vector<std::size_t> sizes;
  for (auto& bucket : site.context->buckets())
    sizes.push_back(bucket.size());
  const auto sums = sums_of_step(site);
  // With two workers, the update also adds up their gradients, which saves a pass over the memory.
  // There are three exceptions. Clipping needs the norm of the sum before the update. LAMB cannot
  // add up during its update. With in_ring, the GPUs add up the gradients in a separate step before
  // the update (replica_store::add_up).
  const auto& rule = site.context->rule;
  const bool adds_later = rule.clip_norm == 0 && !rule.by_tensor() && !site.replica.in_ring;
  const auto rank = spawn_ring_node(site, std::move(sizes), sums, adds_later);
  site.host(proto::RING_NODE, rank, site.left());
  how.view = site.view;
  how.worker = site.task.index;
  how.ring = rank;
  how.requests = site.requests;
  if (site.context->job.has_checkpoint() || site.context->job.has_evaluate())
    how.coordinator = site.coordinator;
  const auto synchronizer =
    spawn_for<ring_synchronizer>(site.context->parameters().size(), site, site.context, how,
                                 caf::actor_cast<worker_actor>(site.worker));
  site.host(proto::SYNCHRONIZER, synchronizer);
  site.host(proto::READER, synchronizer);
  join_ring(site, rank, [site, synchronizer, summing = sums.empty() ? ring_node_actor{} : rank] {
    site.give(caf::actor_cast<synchronizer_actor>(synchronizer), summing);
  });
}

} // namespace troupe
