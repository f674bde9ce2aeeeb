#include "actors/cluster/cluster_node.hpp"
#include "actors/parameter_server/ps_synchronizer.hpp"
#include "actors/parameter_server/reader_front.hpp"
#include "actors/protocols/shard_policies.hpp"
#include "actors/ring/ring_synchronizer.hpp"
#include "actors/status/pulse.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

// What a node starts for its tasks when a view opens.

namespace troupe {

template <class Handle>
void cluster_node::reach_as(const endpoint& name, std::function<void(Handle)> then) {
  reach(name, [then](caf::strong_actor_ptr x) { then(caf::actor_cast<Handle>(std::move(x))); });
}

template <class Actor, class... Args>
auto cluster_node::spawn_task(bool heavy, Args&&... args) {
  auto result = heavy ? options_.spawner.spawn_heavy<Actor>(system(), std::forward<Args>(args)...)
                      : options_.spawner.spawn_light<Actor>(system(), std::forward<Args>(args)...);
  start(caf::actor_cast<caf::strong_actor_ptr>(result));
  return result;
}

caf::result<proto::ViewReady> cluster_node::on_open_view(const proto::OpenView& x) {
  task_name task;
  if (!context_ || !from_proto(x.task(), task) || !hosts(task) || task == coordinator_task)
    return make_error(errc::malformed,
                      "a view was opened for a task that has not joined from here");
  if (x.view() < view_.number)
    return *refuse_other_view(view_.number, x.view());
  proto::ViewReady ready;
  ready.set_view(x.view());
  if (auto i = opening_.find(task); i != opening_.end()) {
    // A repetition: answered now, or with the first.
    if (i->second.ready)
      return ready;
    i->second.answers.push_back(make_response_promise<proto::ViewReady>());
    return i->second.answers.back();
  }
  view_ = from_proto(x);
  spdlog::debug("view {} opens for {}: {} tasks", view_.number, to_string(task),
                view_.members.size());
  for (auto& m : view_.members)
    if (!m.address.empty())
      addresses_[m.task] = m.address;
  auto answer = make_response_promise<proto::ViewReady>();
  opening_[task].answers.push_back(answer);
  if (task.job == job_kind::ps)
    start_shard(task);
  else if (task.job == job_kind::evaluator)
    start_evaluator(task);
  else
    start_worker(task);
  return answer;
}

void cluster_node::task_ready(const task_name& task, const std::string& problem) {
  auto i = opening_.find(task);
  if (i == opening_.end())
    return;
  i->second.ready = problem.empty();
  spdlog::debug("{} is {}", to_string(task), problem.empty() ? "ready" : "not ready: " + problem);
  proto::ViewReady ready;
  ready.set_view(view_.number);
  for (auto& answer : std::exchange(i->second.answers, {}))
    if (problem.empty())
      answer.deliver(ready);
    else
      answer.deliver(make_error(errc::failed, problem));
}

// -- ps -----------------------------------------------------------------------------------------

void cluster_node::start_shard(const task_name& task) {
  if (context_->job.protocol() == proto::RING) {
    task_ready(task, ""); // Accepted, and idle.
    return;
  }
  shard_options how;
  how.view = view_;
  how.index = task.index;
  how.where = context_->shard(task.index, view_.of(job_kind::ps).size());
  how.requests = requests();
  reach_as<coordinator_actor>({coordinator_task, proto::COORDINATOR},
                              [this, task, how](coordinator_actor x) mutable {
                                how.coordinator = std::move(x);
                                start_shard(task, how);
                              });
}

void cluster_node::start_shard(const task_name& task, shard_options how) {
  const auto workers = view_.of(job_kind::worker);
  const auto pulled = make_pulled_versions(*context_, workers.size());
  const auto versions =
    make_versions(*context_, how.where, workers.size(), pulled ? workers.size() : 0);
  std::vector<std::uint32_t> indices;
  for (auto& x : workers)
    indices.push_back(x.task.index);
  how.policy = make_shard_policy(context_, how.where, task.index, indices, pulled);
  auto reader =
    spawn_task<reader_front>(false, view_.number, how.where, versions, pulled, how.board);
  auto shard = spawn_task<parameter_shard>(true, context_, how, versions);
  host({task, proto::READER}, caf::actor_cast<caf::strong_actor_ptr>(reader));
  host({task, proto::SHARD}, caf::actor_cast<caf::strong_actor_ptr>(shard));
  start_pulse(task, how.board);
  if (context_->job.protocol() != proto::SYNC_PS) {
    task_ready(task, "");
    return;
  }
  // Each actor, once reached, is added in its place; the last one makes the shard ready.
  const auto shards = context_->rule.clip_norm > 0 ? view_.of(job_kind::ps) : std::vector<member>{};
  auto listeners = std::make_shared<step_listeners>();
  auto missing = std::make_shared<std::size_t>(workers.size() + shards.size());
  listeners->actors.resize(workers.size());
  listeners->shards.resize(shards.size());
  const auto one_less = [this, task, shard, listeners, missing] {
    if (--*missing > 0)
      return;
    send(shard, *listeners);
    task_ready(task, "");
  };
  for (std::size_t i = 0; i < workers.size(); ++i)
    reach_as<step_listener>({workers[i].task, proto::SYNCHRONIZER},
                            [listeners, one_less, i](step_listener x) {
                              listeners->actors[i] = std::move(x);
                              one_less();
                            });
  for (std::size_t i = 0; i < shards.size(); ++i)
    reach_as<shard_actor>({shards[i].task, proto::SHARD}, [listeners, one_less, i](shard_actor x) {
      listeners->shards[i] = std::move(x);
      one_less();
    });
}

// -- evaluator ----------------------------------------------------------------------------------

void cluster_node::start_evaluator(const task_name& task) {
  reach_as<coordinator_actor>(
    {coordinator_task, proto::COORDINATOR}, [this, task](coordinator_actor x) {
      evaluation_service_options how;
      how.task = task;
      how.context = context_;
      how.source = options_.source;
      how.coordinator = caf::actor_cast<evaluation_sink>(std::move(x));
      how.observer = options_.observer;
      how.requests = requests();
      how.spawner = options_.spawner;
      how.owner = caf::actor_cast<evaluation_service_owner>(this);
      auto service = spawn_task<evaluation_service>(false, std::move(how));
      host({task, proto::EVALUATOR}, caf::actor_cast<caf::strong_actor_ptr>(service));
    });
}

void cluster_node::on_evaluator_ready(const evaluator_ready& x) {
  task_ready(x.task, x.problem);
  if (!x.problem.empty() && only(job_kind::evaluator))
    end_with(x.problem);
}

// -- workers ------------------------------------------------------------------------------------

void cluster_node::start_worker(const task_name& task) {
  reach_as<coordinator_actor>(
    {coordinator_task, proto::COORDINATOR}, [this, task](coordinator_actor x) {
      worker_options how;
      how.view = view_.number;
      how.index = task.index;
      how.incarnation = options_.incarnation;
      how.prefetch = context_->job.data().prefetch();
      how.max_bad = std::max<std::uint64_t>(context_->job.max_bad(), 1);
      how.requests = requests();
      how.coordinator = x;
      how.owner = caf::actor_cast<worker_owner>(this);
      const auto board = how.board;
      worker_shell shell = spawn_task<worker>(false, std::move(how));
      workers_.push_back(shell);
      host({task, proto::WORKER}, caf::actor_cast<caf::strong_actor_ptr>(shell));
      if (context_->job.protocol() == proto::RING)
        start_ring_worker(task, shell, board, x);
      else
        start_ps_worker(task, shell, board);
      start_pulse(task, board);
    });
}

void cluster_node::start_pulse(const task_name& task, std::shared_ptr<activity_board> board) {
  reach_as<coordinator_actor>(
    {coordinator_task, proto::COORDINATOR}, [this, task, board](coordinator_actor x) {
      spawn_task<pulse>(false, pulse_options{view_.number, task, board, std::move(x)});
    });
}

void cluster_node::start_ps_worker(const task_name& task, const worker_shell& shell,
                                   std::shared_ptr<activity_board> board) {
  const auto shards = view_.of(job_kind::ps);
  auto how = std::make_shared<ps_synchronizer_options>();
  how->view = view_.number;
  how->worker = task.index;
  how->incarnation = options_.incarnation;
  how->requests = requests();
  how->board = std::move(board);
  choose_manners(context_->job, view_.of(job_kind::worker).size(), *how);
  how->shards.resize(shards.size());
  how->readers.resize(shards.size());
  auto missing = std::make_shared<std::size_t>(2 * shards.size());
  const auto one_less = [this, task, shell, how, missing] {
    if (--*missing > 0)
      return;
    auto synchronizer =
      spawn_task<ps_synchronizer>(false, context_, *how, caf::actor_cast<worker_actor>(shell));
    host({task, proto::SYNCHRONIZER}, caf::actor_cast<caf::strong_actor_ptr>(synchronizer));
    give_parts(shell, caf::actor_cast<synchronizer_actor>(synchronizer));
  };
  for (std::size_t i = 0; i < shards.size(); ++i) {
    reach_as<shard_actor>({shards[i].task, proto::SHARD}, [how, one_less, i](shard_actor x) {
      how->shards[i] = std::move(x);
      one_less();
    });
    reach_as<reader_actor>({shards[i].task, proto::READER}, [how, one_less, i](reader_actor x) {
      how->readers[i] = std::move(x);
      one_less();
    });
  }
}

void cluster_node::start_ring_worker(const task_name& task, const worker_shell& shell,
                                     std::shared_ptr<activity_board> board,
                                     const coordinator_actor& coordinator) {
  const auto workers = view_.of(job_kind::worker);
  const auto self = std::ranges::find(workers, task, &member::task) - workers.begin();
  ring_place place;
  place.rank = static_cast<std::size_t>(self);
  place.ranks = workers.size();
  place.chunk_elements =
    std::max<std::size_t>(context_->job.runtime().ring_chunk_bytes() / sizeof(float), 1);
  std::vector<std::size_t> sizes;
  for (auto& bucket : context_->buckets())
    sizes.push_back(bucket.size());
  ring_node_actor ring = spawn_task<ring_node>(true, view_.number, place, std::move(sizes), board);
  host({task, proto::RING_NODE}, caf::actor_cast<caf::strong_actor_ptr>(ring));
  ring_synchronizer_options how;
  how.view = view_;
  how.worker = task.index;
  how.ring = ring;
  how.requests = requests();
  if (context_->job.has_checkpoint() || context_->job.has_evaluate())
    how.coordinator = coordinator;
  auto synchronizer =
    spawn_task<ring_synchronizer>(true, context_, how, caf::actor_cast<worker_actor>(shell));
  host({task, proto::SYNCHRONIZER}, caf::actor_cast<caf::strong_actor_ptr>(synchronizer));
  host({task, proto::READER}, caf::actor_cast<caf::strong_actor_ptr>(synchronizer));
  // The left neighbour needs a link to this node, and may be one that waits to be dialled.
  const auto& left = workers[(place.rank + workers.size() - 1) % workers.size()].task;
  reach({left, proto::RING_NODE}, [](const caf::strong_actor_ptr&) {});
  if (left != task)
    board->await(left);
  const auto right = workers[(place.rank + 1) % workers.size()].task;
  reach_as<ring_actor>({right, proto::RING_NODE},
                       [this, shell, ring, synchronizer, right](ring_actor x) {
                         send(ring, ring_neighbour{right, std::move(x)});
                         give_parts(shell, caf::actor_cast<synchronizer_actor>(synchronizer));
                       });
}

void cluster_node::give_parts(const worker_shell& shell, synchronizer_actor synchronizer) {
  worker_parts parts;
  parts.synchronizer = std::move(synchronizer);
  parts.trainer = spawn_task<trainer>(true, context_, parts.synchronizer,
                                      caf::actor_cast<trainer_listener>(shell));
  parts.input = spawn_task<input_reader>(true, context_, options_.source,
                                         caf::actor_cast<input_listener>(shell));
  send(shell, std::move(parts));
}

} // namespace troupe
