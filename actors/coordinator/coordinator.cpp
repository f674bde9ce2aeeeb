#include "actors/coordinator/coordinator.hpp"

#include "actors/model/job_file.hpp"
#include "actors/worker/lease_cursor.hpp"
#include "kernels/error.hpp"
#include "messages/configure.hpp"

#include <algorithm>

// How a run begins and goes on; how it ends stands in coordinator_end.cpp.

namespace troupe {

namespace {

constexpr std::chrono::milliseconds tick_interval{500};

std::string plural(std::size_t n, const std::string& what) {
  return std::to_string(n) + ' ' + what + (n == 1 ? "" : "s");
}

} // namespace

coordinator::coordinator(caf::actor_config& cfg, coordinator_options options)
  : super(cfg), options_(std::move(options)) {}

coordinator::behavior_type coordinator::make_behavior() {
  began_ = clock().now();
  set_down_handler([this](caf::down_msg& x) { on_down(x); });
  evaluator_ = options_.spawner.spawn_heavy<evaluator>(system(), options_.context, options_.data,
                                                       caf::actor_cast<evaluation_listener>(this));
  if (!options_.output.empty())
    recorder_ = options_.spawner.spawn_heavy<recorder>(system(), options_.context, options_.files,
                                                       options_.output);
  monitor(evaluator_);
  if (recorder_)
    monitor(recorder_);
  delayed_send(this, tick_interval, tick{});
  return {
    [this](const proto::Join& x) { return on_join(x); },
    in_view(this, &coordinator::on_lease_request),
    in_view(this, &coordinator::on_lease_done),
    in_view(this, &coordinator::on_heartbeat),
    in_view(this, &coordinator::on_leave),
    [this](const proto::Failure& x) { on_failure(x); },
    [this](const evaluated& x) { on_evaluated(x); },
    [this](const stop_run& x) { fail(x.reason, true); },
    [this](tick) { on_tick(); },
  };
}

void coordinator::on_exit() {
  for (auto& x : {caf::actor_cast<caf::actor>(evaluator_), caf::actor_cast<caf::actor>(recorder_)})
    if (x)
      anon_send_exit(x, caf::exit_reason::user_shutdown);
  evaluator_ = nullptr;
  recorder_ = nullptr;
  options_.host = nullptr;
  workers_.clear();
  shards_.clear();
  readers_.clear();
  reporters_.clear();
  nodes_.clear();
}

void coordinator::on_tick() {
  if (phase_ == phase::done)
    return;
  delayed_send(this, tick_interval, tick{});
  if (phase_ == phase::gathering)
    report_waiting();
  else if (phase_ == phase::training)
    publish_progress();
}

// -- gathering ----------------------------------------------------------------------------------

std::optional<std::string> coordinator::refusal(const proto::Join& x, const task_name& task) const {
  const auto name = to_string(task);
  if (std::ranges::none_of(options_.tasks, [&](auto& t) { return t.task == task; }))
    return name + " is not in the cluster of this coordinator";
  if (x.version() != version())
    return name + " runs troupe " + x.version() + ", the coordinator " + version()
      + ": install the same version on all nodes";
  if (auto i = joined_.find(task); i != joined_.end() && i->second.incarnation != x.incarnation())
    return name + " has joined already, from " + i->second.address
      + ": is it started twice, or does --task say the wrong number?";
  if (x.job_hash().empty() || x.job_hash() == options_.context->hash)
    return std::nullopt;
  std::string difference;
  try {
    difference = first_difference(parse_job(x.job_text(), name), job());
  } catch (const input_error& error) {
    difference = error.what();
  }
  return name + " was given another job (hash " + x.job_hash().substr(0, 12)
    + ", the coordinator's " + options_.context->hash.substr(0, 12) + "): " + difference
    + ". Leave out --job on nodes: the coordinator sends its own";
}

caf::result<proto::Joined> coordinator::on_join(const proto::Join& x) {
  task_name task;
  if (!from_proto(x.task(), task))
    return make_error(errc::join_refused, "there is no job '" + x.task().job() + "'");
  if (auto reason = refusal(x, task)) {
    notice("refused " + to_string(task) + " at " + x.address() + ": " + *reason);
    return make_error(errc::join_refused, *reason);
  }
  proto::Joined answer;
  answer.set_job(job().SerializeAsString());
  answer.set_job_hash(options_.context->hash);
  const auto& data = options_.context->data;
  answer.set_train_records(data.train_records);
  answer.set_feature_width(static_cast<std::uint32_t>(data.feature_width));
  answer.set_classes(data.labels == label_kind::classes);
  answer.set_label_width(static_cast<std::uint32_t>(data.label_width));
  if (!joined_.emplace(task, member{task, x.incarnation(), x.address()}).second)
    return answer; // A repetition.
  reach<node_actor>({task, proto::NODE}, [this, task](node_actor node) {
    nodes_[task] = node;
    monitor(node);
    monitored_nodes_[node.address()] = task;
  });
  if (joined_.size() == options_.tasks.size())
    open_view();
  return answer;
}

// Tasks that train are watched themselves; before that, their nodes stand for them.
void coordinator::on_node_down(const task_name& task, const std::string& reason) {
  nodes_.erase(task);
  if (phase_ == phase::gathering) {
    joined_.erase(task);
    notice(reason + "; waiting for it to join again");
  } else if (phase_ == phase::opening) {
    fail(reason);
  }
}

void coordinator::report_waiting() {
  const auto waited = std::chrono::floor<std::chrono::seconds>(clock().now() - began_);
  std::string missing;
  for (auto& x : options_.tasks)
    if (!joined_.contains(x.task))
      missing += (missing.empty() ? "" : ", ") + to_string(x.task)
        + (x.address.empty() ? "" : " (" + x.address + ")");
  const std::chrono::milliseconds limit{job().runtime().join_timeout_ms()};
  if (clock().now() - began_ >= limit) {
    fail("not all tasks joined within "
         + plural(static_cast<std::size_t>(limit.count() / 1000), "second") + ": missing " + missing
         + ". Start them with `troupe node`, with the same cluster file");
  } else if (waited >= next_notice_) {
    notice("waiting for " + missing + " since "
           + plural(static_cast<std::size_t>(waited.count()), "second"));
    next_notice_ = waited + std::chrono::seconds{5};
  }
}

// -- opening the view ---------------------------------------------------------------------------

template <class Handle>
void coordinator::reach(const endpoint& name, std::function<void(Handle)> then) {
  const std::chrono::milliseconds limit{job().runtime().join_timeout_ms()};
  request(options_.host, limit, resolve{name})
    .then([then](const resolved& x) { then(caf::actor_cast<Handle>(x.actor)); },
          [this, name](const caf::error& error) {
            fail(to_string(name) + " cannot be reached: " + explain(error));
          });
}

void coordinator::open_view() {
  phase_ = phase::opening;
  view_.number = 1;
  for (auto& [task, x] : joined_)
    view_.members.push_back(x);
  for (auto& x : view_.of(job_kind::worker)) {
    worker_state worker;
    worker.rank = workers_.size();
    worker.account.worker = x.task.index;
    worker.account.incarnation = x.incarnation;
    workers_.push_back(std::move(worker));
  }
  lease_book::options how;
  how.records = options_.context->data.train_records;
  how.batch = job().data().batch();
  how.workers = workers_.size();
  how.in_step = in_step();
  leases_.emplace(how);
  for (auto& x : view_.members)
    open_at(x.task);
}

void coordinator::open_at(const task_name& task) {
  reach<node_actor>({task, proto::NODE}, [this, task](node_actor node) {
    const std::chrono::milliseconds limit{job().runtime().join_timeout_ms()};
    request(node, limit, to_proto(view_, task))
      .then(
        [this](const proto::ViewReady&) {
          if (phase_ == phase::opening && ++views_opened_ == view_.members.size())
            reach_tasks();
        },
        [this, task](const caf::error& error) {
          fail(to_string(task) + " cannot take part: " + explain(error));
        });
  });
}

template <class Handle>
void coordinator::reach_for_training(const endpoint& name, Handle& where, bool watch) {
  ++unreached_;
  reach<Handle>(name, [this, name, &where, watch](Handle x) {
    where = x;
    if (watch) {
      monitor(x);
      monitored_[x.address()] = name.task;
    }
    if (--unreached_ == 0 && phase_ == phase::opening)
      start_training();
  });
}

void coordinator::reach_tasks() {
  const auto workers = view_.of(job_kind::worker);
  const auto shards = view_.of(job_kind::ps);
  shards_.resize(uses_shards() ? shards.size() : 0);
  readers_.resize(uses_shards() ? shards.size() : 1);
  reporters_.resize(uses_shards() ? shards.size() : workers.size());
  lost_samples_.assign(reporters_.size(), 0);
  // Counted once too many until all requests are made, so that training does not start in between.
  ++unreached_;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    reach_for_training({workers[i].task, proto::WORKER}, workers_[i].handle, true);
    if (!uses_shards())
      reach_for_training({workers[i].task, proto::SYNCHRONIZER}, reporters_[i]);
  }
  if (!uses_shards())
    reach_for_training({workers[0].task, proto::READER}, readers_[0]);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    reach_for_training({shards[i].task, proto::SHARD}, shards_[i], true);
    reach_for_training({shards[i].task, proto::SHARD}, reporters_[i]);
    reach_for_training({shards[i].task, proto::READER}, readers_[i]);
  }
  --unreached_;
}

void coordinator::worker_state::hear(const proto::Progress& x) {
  account.produced = std::max(account.produced, x.produced());
  account.requeued = std::max(account.requeued, x.requeued());
}

// -- training -----------------------------------------------------------------------------------

void coordinator::start_training() {
  training_began_ = clock().now();
  open_epoch(0);
}

void coordinator::open_epoch(std::uint32_t epoch) {
  phase_ = phase::training;
  epoch_ = epoch;
  epoch_began_ = clock().now();
  epoch_samples_ = epoch_loss_samples_ = 0;
  epoch_loss_ = 0;
  leases_->open_epoch(epoch);
  give_leases();
}

void coordinator::give_leases() {
  if (phase_ != phase::training)
    return;
  for (auto& worker : workers_)
    while (worker.present && worker.given < worker.asked) {
      auto lease = leases_->next(worker.rank);
      if (!lease)
        break;
      lease->set_view(view_.number);
      ++worker.given;
      send(worker.handle, std::move(*lease));
    }
}

template <class Header>
coordinator::worker_state* coordinator::find_worker(const Header& x) {
  auto i = std::ranges::find_if(workers_, [&](auto& w) {
    return w.account.worker == x.worker() && w.account.incarnation == x.incarnation();
  });
  return i == workers_.end() || !i->present ? nullptr : &*i;
}

caf::result<proto::Ack> coordinator::on_lease_request(const proto::LeaseRequest& x) {
  if (auto* worker = find_worker(x)) {
    worker->asked = std::max(worker->asked, x.number());
    give_leases();
    return proto::Ack{};
  }
  return make_error(errc::fenced,
                    "worker/" + std::to_string(x.worker())
                      + " was given up; its leases are trained by others");
}

caf::result<proto::Ack> coordinator::on_lease_done(const proto::LeaseDone& x) {
  auto* worker = find_worker(x);
  if (!worker)
    return make_error(errc::fenced, "worker/" + std::to_string(x.worker()) + " was given up");
  const auto held = leases_->held_by(worker->rank);
  const auto lease = std::ranges::find(held, x.lease(), &proto::Lease::id);
  if (lease == held.end())
    return proto::Ack{}; // A repetition.
  if (in_step() && x.batches() < batches_of(*lease))
    return proto::Ack{}; // The worker leaves, which ends the run; its Leave says why.
  if (!leases_->settle(x.lease(), x.batches(), x.samples())) {
    fail("worker/" + std::to_string(x.worker()) + " reports " + plural(x.samples(), "sample")
         + " for " + plural(x.batches(), "batch") + " of lease " + std::to_string(x.lease())
         + ", which cannot be");
    return proto::Ack{};
  }
  worker->hear(x.progress());
  worker->live_samples = 0;
  worker->live_loss = 0;
  count_trained(x.samples(), x.loss_sum(), x.samples());
  go_on();
  return proto::Ack{};
}

void coordinator::count_trained(std::uint64_t samples, double loss_sum,
                                std::uint64_t loss_samples) {
  summary_.samples += samples;
  epoch_samples_ += samples;
  epoch_loss_ += loss_sum;
  epoch_loss_samples_ += loss_samples;
}

// After samples were committed or given back.
void coordinator::go_on() {
  if (phase_ != phase::training)
    return;
  if (settling_ == 0 && leases_->epoch_done())
    take_snapshot();
  else
    give_leases();
}

void coordinator::on_heartbeat(const proto::Heartbeat& x) {
  if (auto* worker = find_worker(x)) {
    worker->hear(x.progress());
    worker->live_samples = x.samples();
    worker->live_loss = x.loss_sum();
  }
}

// -- workers that go ----------------------------------------------------------------------------

caf::result<proto::Ack> coordinator::on_leave(const proto::Leave& x) {
  auto* worker = find_worker(x);
  if (!worker)
    return proto::Ack{};
  const auto name = "worker/" + std::to_string(x.worker());
  worker->present = false;
  worker->hear(x.progress());
  if (phase_ == phase::opening) {
    fail(name + " left (" + x.reason() + ") before training began");
    return proto::Ack{};
  }
  for (auto& lease : leases_->held_by(worker->rank))
    leases_->settle(lease.id(), 0, 0);
  if (in_step()) {
    fail(name + " left (" + x.reason() + "), and " + protocol_name(job().protocol())
         + " needs all workers");
  } else if (std::ranges::none_of(workers_, &worker_state::present)) {
    fail("all workers have left");
  } else {
    notice(name + " left (" + x.reason() + "); the others train its samples");
    go_on();
  }
  return proto::Ack{};
}

void coordinator::on_failure(const proto::Failure& x) {
  task_name task;
  const bool known = from_proto(x.task(), task);
  // A worker that was given up learns of it by its gradients being refused; the run goes on without
  // it.
  const bool given_up = known && task.job == job_kind::worker
    && std::ranges::any_of(workers_,
                           [&](auto& w) { return w.account.worker == task.index && !w.present; });
  if (!given_up)
    fail(x.reason());
}

void coordinator::on_down(const caf::down_msg& x) {
  if (phase_ == phase::done)
    return;
  for (const auto& helper :
       {caf::actor_cast<caf::actor>(evaluator_), caf::actor_cast<caf::actor>(recorder_)})
    if (helper && helper.address() == x.source)
      fail("the coordinator's evaluation or output ended: " + explain(x.reason));
  if (auto node = monitored_nodes_.find(x.source); node != monitored_nodes_.end())
    on_node_down(node->second, to_string(node->second) + " is gone: " + explain(x.reason));
  auto i = monitored_.find(x.source);
  if (i == monitored_.end() || phase_ == phase::done)
    return;
  const auto task = i->second;
  const auto reason = to_string(task) + " is gone: " + explain(x.reason);
  if (task.job != job_kind::worker || phase_ == phase::opening) {
    fail(reason);
    return;
  }
  for (auto& worker : workers_)
    if (worker.account.worker == task.index && worker.present)
      on_worker_lost(worker.rank, reason);
}

void coordinator::on_worker_lost(std::size_t rank, const std::string& reason) {
  auto& worker = workers_[rank];
  worker.present = false;
  worker.account.vanished = true;
  if (in_step() || phase_ == phase::finishing
      || std::ranges::none_of(workers_, &worker_state::present)) {
    if (phase_ != phase::finishing)
      fail(reason);
    return;
  }
  notice(reason + "; the others train its samples");
  ++settling_;
  proto::Fence fence;
  fence.set_view(view_.number);
  fence.set_worker(worker.account.worker);
  fence.set_incarnation(worker.account.incarnation);
  auto decided = std::make_shared<std::vector<proto::Decided>>(shards_.size());
  auto missing = std::make_shared<std::size_t>(shards_.size());
  for (std::size_t i = 0; i < shards_.size(); ++i)
    ask(
      this, shards_[i], requests(),
      [this, rank, decided, missing, i](const proto::Fenced& x) {
        (*decided)[i] = x.decided();
        if (--*missing == 0)
          settle_vanished(rank, *decided);
      },
      [this](const caf::error& error) { fail("a shard cannot be reached: " + explain(error)); },
      fence);
}

// Behind the fence nothing of the worker is applied any more, so what the shards say is final. A
// batch counts as trained if any shard has applied its gradient; the parts that did not arrive at
// the others are lost.
void coordinator::settle_vanished(std::size_t rank, const std::vector<proto::Decided>& decided) {
  for (auto& lease : leases_->held_by(rank)) {
    const auto batches_at = [&](const proto::Decided& x) {
      return x.lease() > lease.id() ? batches_of(lease)
        : x.lease() == lease.id()   ? std::min(x.batch() + 1, batches_of(lease))
                                    : 0;
    };
    std::uint64_t batches = 0;
    for (auto& x : decided)
      batches = std::max(batches, batches_at(x));
    const auto samples = samples_of(lease, batches);
    for (std::size_t i = 0; i < decided.size(); ++i)
      lost_samples_[i] += samples - samples_of(lease, batches_at(decided[i]));
    leases_->settle(lease.id(), batches, samples);
    count_trained(samples, 0, 0);
  }
  --settling_;
  go_on();
}

} // namespace troupe
