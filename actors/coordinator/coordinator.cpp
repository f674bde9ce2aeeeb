#include "actors/coordinator/coordinator.hpp"

#include "actors/checkpoint/resume.hpp"
#include "actors/model/job_file.hpp"
#include "actors/worker/lease_cursor.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

// How a run goes on; how it begins stands in coordinator_join.cpp, how it ends in
// coordinator_end.cpp.

namespace troupe {

namespace {

constexpr std::chrono::milliseconds tick_interval{250};

} // namespace

coordinator::coordinator(caf::actor_config& cfg, coordinator_options options)
  : super(cfg), options_(std::move(options)) {}

coordinator::behavior_type coordinator::make_behavior() {
  began_ = clock().now();
  set_down_handler([this](caf::down_msg& x) { on_down(x); });
  evaluations_options evaluation;
  evaluation.context = options_.context;
  evaluation.source = [data = options_.data](const proto::Job&) { return data; };
  evaluation.listener = caf::actor_cast<evaluation_listener>(this);
  evaluation.observer = options_.observer;
  evaluation.requests = requests();
  evaluation.spawner = options_.spawner;
  evaluator_ = options_.spawner.spawn_heavy<evaluations>(system(), std::move(evaluation));
  if (!options_.output.empty())
    recorder_ =
      options_.spawner.spawn_heavy<recorder>(system(), options_.context, options_.files,
                                             options_.output, options_.origin, options_.resume);
  if (!options_.output.empty() && job().has_checkpoint())
    checkpoint_writer_ = options_.spawner.spawn_heavy<checkpoint_writer>(
      system(), options_.context, options_.files, checkpoint_folder(options_.output),
      caf::actor_cast<checkpoint_listener>(this));
  for (auto& helper : helpers())
    monitor(helper);
  for (auto& text : options_.notices)
    notice(text);
  delayed_send(this, tick_interval, tick{});
  return {
    [this](const proto::Join& x) { return on_join(x); },
    in_view(this, &coordinator::on_lease_request),
    in_view(this, &coordinator::on_lease_done),
    in_view(this, &coordinator::on_heartbeat),
    in_view(this, &coordinator::on_leave),
    in_view(this, &coordinator::on_checkpoint_part),
    [this](const proto::Failure& x) { on_failure(x); },
    in_view(this, &coordinator::on_status),
    [this](const evaluated& x) { on_evaluated(x); },
    [this](const proto::Evaluated& x) {
      send(evaluator_, x);
      return proto::Ack{};
    },
    [this](const checkpoint_written& x) { on_checkpoint_written(x); },
    [this](const solved& x) { on_solved(x); },
    [this](const stop_run& x) { fail(x.reason, true); },
    [this](tick) { on_tick(); },
  };
}

std::vector<caf::actor> coordinator::helpers() const {
  std::vector<caf::actor> result;
  for (const auto& x :
       {caf::actor_cast<caf::actor>(evaluator_), caf::actor_cast<caf::actor>(recorder_),
        caf::actor_cast<caf::actor>(checkpoint_writer_), solver_})
    if (x)
      result.push_back(x);
  return result;
}

void coordinator::on_exit() {
  for (auto& helper : helpers())
    anon_send_exit(helper, caf::exit_reason::user_shutdown);
  evaluator_ = nullptr;
  recorder_ = nullptr;
  checkpoint_writer_ = nullptr;
  solver_ = nullptr;
  for (auto& [version, x] : checkpoints_)
    for (auto& answer : x.answers)
      answer.deliver(make_error(errc::failed, "the coordinator ends"));
  checkpoints_.clear();
  for (auto& [version, x] : step_evaluations_)
    for (auto& answer : x.answers)
      answer.deliver(make_error(errc::failed, "the coordinator ends"));
  step_evaluations_.clear();
  if (options_.files)
    options_.files->unlock();
  options_.host = nullptr;
  options_.observer = nullptr;
  options_.weights = nullptr;
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
  drop_late_checkpoints();
  drop_late_evaluations();
  if (phase_ == phase::gathering)
    report_waiting();
  else if (phase_ == phase::training)
    publish_progress();
  judge_stalls();
}

void coordinator::worker_state::hear(const proto::Progress& x) {
  account.produced = std::max(account.produced, x.produced());
  account.requeued = std::max(account.requeued, x.requeued());
}

// -- training -----------------------------------------------------------------------------------

void coordinator::start_training() {
  training_began_ = clock().now();
  watch_tasks();
  const auto& records = options_.context->data.train_records;
  if (!options_.resume) {
    expected_samples_ = records * job().epochs();
    open_epoch(0);
    return;
  }
  resumed_ = true;
  last_checkpoint_ = options_.resume->directory.string();
  const auto cut = options_.resume->manifest.cut;
  // Everybody has what it held.
  options_.resume.reset();
  expected_samples_ = cut.samples() + records * (job().epochs() - 1 - cut.epoch);
  begin_epoch(cut.epoch);
  epoch_trained_before_ = records - cut.samples();
  leases_->resume_epoch(cut);
  go_on();
}

void coordinator::open_epoch(std::uint32_t epoch) {
  begin_epoch(epoch);
  leases_->open_epoch(epoch);
  give_leases();
}

void coordinator::begin_epoch(std::uint32_t epoch) {
  phase_ = phase::training;
  epoch_ = epoch;
  epoch_began_ = clock().now();
  epoch_samples_ = epoch_loss_samples_ = epoch_leases_ = 0;
  epoch_loss_ = 0;
  epoch_trained_before_ = 0;
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
      ++epoch_leases_;
      spdlog::trace("worker/{} gets lease {}: samples {} to {} of epoch {}", worker.account.worker,
                    lease->id(), lease->begin(), lease->end(), epoch_ + 1);
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
    fail("worker/" + std::to_string(x.worker()) + " reports " + std::to_string(x.samples())
         + " samples for " + std::to_string(x.batches()) + " batches of lease "
         + std::to_string(x.lease()) + ", which cannot be");
    return proto::Ack{};
  }
  spdlog::trace("worker/{} has trained {} samples of lease {}", x.worker(), x.samples(), x.lease());
  stalls_.moved(clock().now());
  hear(*worker, x.progress());
  worker->live_samples = 0;
  worker->live_loss_samples = 0;
  worker->live_loss = 0;
  count_trained(x.samples(), x.loss_sum(), x.loss_samples());
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
    hear(*worker, x.progress());
    worker->live_samples = x.samples();
    worker->live_loss = x.loss_sum();
    worker->live_loss_samples = x.loss_samples();
  }
}

// -- workers that go ----------------------------------------------------------------------------

caf::result<proto::Ack> coordinator::on_leave(const proto::Leave& x) {
  auto* worker = find_worker(x);
  if (!worker)
    return proto::Ack{};
  const auto name = "worker/" + std::to_string(x.worker());
  worker->present = false;
  hear(*worker, x.progress());
  lose_sight_of(*worker, "left");
  if (phase_ == phase::opening) {
    fail(name + " left (" + x.reason() + ") before training began");
    return proto::Ack{};
  }
  for (auto& lease : leases_->held_by(worker->rank))
    leases_->settle(lease.id(), 0, 0);
  if (in_step()) {
    fail(name + " left (" + x.reason() + "), and " + options_.context->protocol.name
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
  // The coordinator can do without an evaluator.
  if (known && task.job == job_kind::evaluator) {
    notice(x.reason());
    return;
  }
  // A worker that was given up learns of it by its gradients being refused; the run goes on without
  // it.
  const bool given_up = known && task.job == job_kind::worker
    && std::ranges::any_of(workers_,
                           [&](auto& w) { return w.account.worker == task.index && !w.present; });
  if (given_up)
    return;
  if (x.goes_on()) {
    notice(x.reason(), notice_level::warning);
    return;
  }
  if (x.not_finite())
    fail_not_finite(x.reason(), epoch_);
  else
    fail(x.reason());
}

void coordinator::on_down(const caf::down_msg& x) {
  if (phase_ == phase::done)
    return;
  for (const auto& helper : helpers())
    if (helper.address() == x.source)
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
  lose_sight_of(worker, "is gone");
  if (in_step() || phase_ == phase::finishing
      || std::ranges::none_of(workers_, &worker_state::present)) {
    if (phase_ != phase::finishing)
      fail(reason);
    return;
  }
  notice(reason + "; the others train its samples", notice_level::warning);
  ++settling_;
  spdlog::debug("fencing worker/{} off at {} shards", worker.account.worker, shards_.size());
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
  spdlog::debug("worker/{} is fenced off at all shards; {} leases go to others",
                workers_[rank].account.worker, leases_->held_by(rank).size());
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
  stalls_.moved(clock().now());
  go_on();
}

} // namespace troupe
