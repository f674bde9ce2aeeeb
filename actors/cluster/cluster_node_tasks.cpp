#include "actors/cluster/cluster_node.hpp"
#include "actors/cluster/footprint.hpp"
#include "actors/status/pulse.hpp"
#include "kernels/error.hpp"
#include "messages/problems.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

// This file: the actors that a cluster_node starts for its tasks when a view (a numbered list of
// members) opens.

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
    // This is a repeated request. Answer it now, or together with the first request.
    if (i->second.ready)
      return ready;
    i->second.answers.push_back(make_response_promise<proto::ViewReady>());
    return i->second.answers.back();
  }
  if (const auto problem = problem_of(x, options_.incarnation); !problem.empty())
    return make_error(errc::malformed, "an invalid view was opened: " + problem);
  const auto opened = from_proto(x);
  if (opened.of(job_kind::worker).empty()
      || (context_->protocol.uses_shards() && opened.of(job_kind::ps).empty()))
    return make_error(errc::malformed, "a view was opened without workers or parameter servers");
  view_ = opened;
  spdlog::debug("view {} opens for {}: {} tasks", view_.number, to_string(task),
                view_.members.size());
  for (auto& m : view_.members)
    if (!m.address.empty())
      addresses_[m.task] = m.address;
  // The coordinator's own node was checked before it began.
  if (const auto problem = lacks_memory(); !problem.empty())
    return make_error(errc::bad_input, problem);
  // All ranks of a ring on GPUs must agree on the devices. So keep a device that ring_of_workers()
  // has already chosen in this view.
  const bool chosen =
    task.job == job_kind::worker && ring_view_ == view_.number && devices_.contains(task);
  if (const auto problem = chosen ? std::string{} : lacks_device(*context_, task); !problem.empty())
    return make_error(errc::bad_input, problem);
  auto answer = make_response_promise<proto::ViewReady>();
  opening_[task].answers.push_back(answer);
  if (task.job == job_kind::ps)
    start_shard(task);
  else if (task.job == job_kind::evaluator)
    start_evaluator(task);
  else
    start_worker(task,
                 x.has_loss_scale() ? std::optional{from_proto(x.loss_scale())} : std::nullopt);
  return answer;
}

// Returns the reason why this host has too little memory; empty if it has enough. The records are
// not counted, because they have not been read yet.
std::string cluster_node::lacks_memory() const {
  if (!options_.memory_problem || options_.coordinator)
    return "";
  cluster_shape shape;
  shape.workers = view_.of(job_kind::worker).size();
  shape.ps = view_.of(job_kind::ps).size();
  shape.separate = true;
  const auto own = memory_of(options_.tasks, *context_, {}, shape);
  const auto beside = tasks_beside(options_.cluster, options_.tasks.front());
  return options_.memory_problem(total_of(own), memory_of(beside, *context_, {}, shape));
}

std::string cluster_node::lacks_device(const job_context& context, const task_name& task) {
  try {
    devices_[task] = choose_device(context, task, options_.gpus.get());
    spdlog::debug("{} computes on {}", to_string(task), devices_[task].text);
    return "";
  } catch (const device_error& error) {
    return error.what();
  } catch (const input_error& error) {
    return error.what();
  }
}

/// Warns the operator if a task uses the CPU instead of its device.
void cluster_node::tell_fallback(const task_name& task, const coordinator_actor& coordinator) {
  warn(task, devices_[task].notice, coordinator);
}

/// Sends the operator a warning about a task. Does nothing if the text is empty.
void cluster_node::warn(const task_name& task, const std::string& text,
                        const coordinator_actor& coordinator) {
  if (text.empty())
    return;
  proto::Failure warning;
  *warning.mutable_task() = to_proto(task);
  warning.set_reason(text);
  warning.set_goes_on(true);
  send(coordinator, std::move(warning));
}

testing_device cluster_node::testing_device_of(std::shared_ptr<const job_context> context,
                                               const task_name& task) const {
  const auto where = devices_.at(task).device;
  return {to_string(task) + " on " + to_string(where),
          [context = std::move(context), gpus = options_.gpus, where] {
            return make_tester(*context, where, gpus.get());
          }};
}

void cluster_node::task_ready(const task_name& task, const std::string& problem) {
  task_ready(task, problem, errc::failed);
}

void cluster_node::task_ready(const task_name& task, const std::string& problem, errc code) {
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
      answer.deliver(make_error(code, problem));
}

// -- functions for protocols ----------------------------------------------------------------------

task_site cluster_node::site_of(const task_name& task, const coordinator_actor& coordinator) {
  task_site result;
  result.node = this;
  result.context = context_;
  result.view = view_;
  result.task = task;
  result.incarnation = options_.incarnation;
  result.requests = requests();
  result.board = boards_[task] = std::make_shared<activity_board>(options_.links.meter);
  result.coordinator = coordinator;
  return result;
}

void cluster_node::start_shard(const task_name& task) {
  const auto& how = protocol_of(*context_, options_.protocols);
  if (!how.traits.uses_shards()) {
    task_ready(task, ""); // Such a protocol leaves the task idle.
    return;
  }
  reach_as<coordinator_actor>(
    {coordinator_task, proto::COORDINATOR}, [this, task, &how](coordinator_actor x) {
      tell_fallback(task, x);
      const auto where = devices_[task].device;
      shard_site site{site_of(task, x)};
      site.device = to_string(task) + " on " + to_string(where);
      try {
        if (where.gpu)
          site.updaters = options_.gpus->open_updaters(where.index);
        how.start_shard(site);
      } catch (const device_error& error) {
        const auto bytes =
          device_memory(*context_, task, 0, view_.of(job_kind::ps).size(), options_.gpus.get())
            .device;
        task_ready(task,
                   site.device + ": " + error.what()
                     + ". The weights, the optimizer's state and a gradient take "
                     + std::to_string(bytes / 1'000'000 + 1) + " MB there in all");
        return;
      }
      start_pulse(task, site.board);
    });
}

// -- evaluator ----------------------------------------------------------------------------------

void cluster_node::start_evaluator(const task_name& task) {
  reach_as<coordinator_actor>(
    {coordinator_task, proto::COORDINATOR}, [this, task](coordinator_actor x) {
      tell_fallback(task, x);
      evaluation_service_options how;
      how.task = task;
      how.context = context_;
      how.source = options_.source;
      how.device = testing_device_of(context_, task);
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

/// Returns the ring in which the GPUs of the view's workers add up their gradients. Null if some
/// workers are on other nodes, or if the GPUs do not permit it. The ring is made when the first
/// worker starts.
std::shared_ptr<device_ring> cluster_node::ring_of_workers(const worker_site& site) {
  const auto workers = view_.of(job_kind::worker);
  if (ring_view_ != view_.number) {
    ring_view_ = view_.number;
    ring_seats_ = workers.size();
    ring_ = nullptr;
    std::vector<device_name> devices;
    for (const auto& x : workers)
      if (hosts(x.task) && (devices_.contains(x.task) || lacks_device(*context_, x.task).empty()))
        devices.push_back(devices_[x.task].device);
    if (devices.size() == workers.size()) {
      auto choice = choose_ring(*context_, devices, options_.gpus.get());
      ring_ = std::move(choice.ring);
      warn(site.task, choice.notice, site.coordinator);
    }
  }
  auto result = ring_;
  if (--ring_seats_ == 0)
    ring_ = nullptr; // From now on, only the replicas own the ring.
  return result;
}

void cluster_node::start_worker(const task_name& task,
                                const std::optional<loss_scale_state>& scale) {
  reach_as<coordinator_actor>(
    {coordinator_task, proto::COORDINATOR}, [this, task, scale](coordinator_actor x) {
      worker_site site{site_of(task, x), {}, scale, {}};
      tell_fallback(task, x);
      worker_options how;
      how.view = view_.number;
      how.index = task.index;
      how.incarnation = options_.incarnation;
      how.prefetch = context_->job.data().prefetch();
      how.max_bad = std::max<std::uint64_t>(context_->job.max_bad(), 1);
      how.overlaps = context_->protocol.overlaps;
      how.requests = requests();
      how.coordinator = std::move(x);
      how.owner = caf::actor_cast<worker_owner>(this);
      how.board = site.board;
      site.worker = spawn_task<worker>(false, std::move(how));
      workers_.push_back(site.worker);
      host({task, proto::WORKER}, caf::actor_cast<caf::strong_actor_ptr>(site.worker));
      const auto workers = view_.of(job_kind::worker).size();
      const auto where = devices_[task].device;
      bool in_ring = false;
      try {
        const auto ring = ring_of_workers(site);
        in_ring = ring != nullptr;
        site.replica = open_replica(*context_, task, where, workers, options_.gpus.get(),
                                    ring.get(), site.rank());
        protocol_of(*context_, options_.protocols).start_worker(site);
      } catch (const device_error& error) {
        const auto bytes =
          device_memory(*context_, task, workers, 0, options_.gpus.get(), in_ring).device;
        task_ready(task,
                   to_string(task) + " on " + to_string(where) + ": " + error.what()
                     + ". The weights, the optimizer's state and batches take "
                     + std::to_string(bytes / 1'000'000 + 1) + " MB there in all");
        return;
      }
      start_pulse(task, site.board);
    });
}

void cluster_node::start_pulse(const task_name& task, std::shared_ptr<activity_board> board) {
  reach_as<coordinator_actor>(
    {coordinator_task, proto::COORDINATOR}, [this, task, board](coordinator_actor x) {
      spawn_task<pulse>(false, pulse_options{view_.number, task, board, std::move(x)});
    });
}

void cluster_node::give_parts(const worker_site& site, synchronizer_actor synchronizer,
                              ring_node_actor sums) {
  const auto where = devices_[site.task].device;
  trainer_device device;
  device.name = to_string(site.task) + " on " + to_string(where);
  device.make_executor = [context = context_, gpus = options_.gpus, where, home = site.replica] {
    return make_training_executor(*context, where, gpus.get(), home);
  };
  worker_parts parts;
  parts.synchronizer = std::move(synchronizer);
  parts.trainer = options_.spawner.spawn_computing<trainer>(
    system(), context_, std::move(device), parts.synchronizer,
    caf::actor_cast<trainer_listener>(site.worker), std::move(sums), site.loss_scale);
  start(caf::actor_cast<caf::strong_actor_ptr>(parts.trainer));
  pinned_memory_source pinned;
  if (where.gpu)
    pinned = [gpus = options_.gpus, where] {
      return require_gpus(gpus.get()).open_pinned_memory(where.index);
    };
  parts.input =
    spawn_task<input_reader>(true, context_, options_.source,
                             caf::actor_cast<input_listener>(site.worker), std::move(pinned));
  send(site.worker, std::move(parts));
}

} // namespace troupe
