#include "actors/coordinator/training_run.hpp"

#include "actors/model/job_file.hpp"
#include "messages/problems.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <utility>

// This file: the middle of a run. The beginning is in training_run_begin.cpp, and the end in
// training_run_end.cpp.

namespace troupe {

namespace {

/// The largest number of leases that a worker may request in advance. It usually requests two.
constexpr std::uint64_t most_leases_asked = 16;

/// The learning rate of the newest complete step of the epoch, or of the first step if no step is
/// complete. A step uses the learning rate at its middle (range_updater).
double newest_rate(const job_context& context, const epoch_totals& now, std::size_t workers) {
  const auto records = context.data.train_records;
  const auto gradients = context.protocol.gradients_of_step(context.job, workers);
  const auto step = std::min<std::uint64_t>(context.gradient_samples() * gradients, records);
  const auto done = std::clamp(now.samples, step, records);
  // The last step of an epoch may be smaller, because it has only the remaining samples.
  const auto size = done == records && records % step > 0 ? records % step : step;
  const auto middle = static_cast<double>(done) - static_cast<double>(size) / 2;
  return context.rate.at(now.epoch + middle / static_cast<double>(records));
}

} // namespace

training_run::training_run(caf::actor_config& cfg, training_run_options options)
  : super(cfg), options_(std::move(options)) {
  if (options_.resume)
    last_checkpoint_ = options_.resume->directory.string();
}

training_run::behavior_type training_run::make_behavior() {
  set_down_handler([this](caf::down_msg& x) {
    if (solver_ && solver_.address() == x.source)
      fail("the solver ended: " + explain(x.reason));
  });
  return {
    [this](const view_opened& x) { on_view(x); },
    [this](const begin_run& x) { on_begin(x); },
    [this](const task_lost& x) { on_task_lost(x); },
    [this](const end_run& x) { end(x); },
    in_view(this, &training_run::on_lease_request),
    in_view(this, &training_run::on_lease_done),
    in_view(this, &training_run::on_heartbeat),
    in_view(this, &training_run::on_leave),
    [this](const proto::Failure& x) { on_failure(x); },
    [this](const snapshot_taken& x) { on_snapshot(x); },
    [this](const snapshot_evaluated& x) { last_ = x.result; },
    [this](const capture_question& x) { return on_question(x); },
    [this](const end_early& x) { on_end_early(x); },
    [this](const checkpoint_kept& x) { last_checkpoint_ = x.path; },
    [this](captures_done) {
      if (phase_ == phase::finishing)
        cut_short_&& stopping_ ? end_cut_short() : settle_accounts();
    },
    [this](const solved& x) { on_solved(x); },
    [this](tick) { on_tick(); },
  };
}

void training_run::on_exit() {
  if (solver_)
    anon_send_exit(solver_, caf::exit_reason::user_shutdown);
  solver_ = nullptr;
  handles_.reset();
  options_.captures = nullptr;
  options_.progress = nullptr;
}

// -- training -----------------------------------------------------------------------------------

void training_run::give_leases() {
  while (phase_ == phase::training) {
    auto next = book_->next_lease(clock().now());
    if (!next)
      return;
    auto& [rank, lease] = *next;
    lease.set_view(view_.number);
    spdlog::trace("{} gets lease {}: samples {} to {} of epoch {}",
                  to_string(book_->workers()[rank].name()), lease.id(), lease.begin(), lease.end(),
                  book_->epoch() + 1);
    send(handles_->workers[rank], std::move(lease));
  }
}

// Tells the shards which workers have no lease at the end of an epoch. Calls `then` when shard 0
// knows this. If the shards buffer gradients (protocol_traits::holds_back), calls `then` when all
// shards know it.
void training_run::report_idle(std::vector<std::uint32_t> workers, std::function<void()> then) {
  idle_ = std::move(workers);
  proto::IdleWorkers news;
  news.set_view(view_.number);
  news.set_number(++idle_reports_);
  news.mutable_worker()->Add(idle_.begin(), idle_.end());
  const auto told = options_.context->protocol.holds_back ? handles_->shards.size() : 1;
  const auto missing = std::make_shared<std::size_t>(told);
  for (std::size_t i = 0; i < told; ++i)
    ask(
      this, handles_->shards[i], requests(),
      [then, missing](const proto::Ack&) {
        if (--*missing == 0)
          then();
      },
      [this](const caf::error& error) {
        fail_without_task("a shard cannot be reached: " + explain(error));
      },
      news);
}

// Continues with the next leases, the snapshot, or the end of the run. Called after samples were
// committed or given back.
void training_run::go_on() {
  if (phase_ != phase::training)
    return;
  if (book_->epoch_done()) {
    snapshot();
    return;
  }
  if (ends_soon() && book_->stopped()) {
    cut_short_ = true;
    finish();
    return;
  }
  give_leases();
  if (options_.context->protocol.tells_idle)
    if (auto idle = book_->idle(); idle != idle_)
      report_idle(std::move(idle), [] {});
}

void training_run::snapshot() {
  phase_ = phase::snapshot;
  spdlog::debug("epoch {}: all of {} leases are settled", book_->epoch() + 1,
                book_->epoch_leases());
  const auto at_the_end = report(false);
  if (const auto text = loss_watch_->epoch(at_the_end.epoch, at_the_end.train_loss))
    notice(*text, notice_level::warning);
  const take_snapshot order{at_the_end, book_->last_epoch()};
  apply_held_back([this, order] {
    if (phase_ == phase::snapshot)
      send(options_.captures, order);
  });
}

// Makes the shards apply the gradients in their buffers (protocol_traits::holds_back), and then
// calls `then`. Called when no worker has a lease.
void training_run::apply_held_back(std::function<void()> then) {
  if (!options_.context->protocol.holds_back) {
    then();
    return;
  }
  std::vector<std::uint32_t> all;
  for (auto& x : view_.of(job_kind::worker))
    all.push_back(x.task.index);
  report_idle(std::move(all), std::move(then));
}

void training_run::on_snapshot(const snapshot_taken&) {
  if (phase_ == phase::finishing && last_captures_)
    send(options_.captures, *std::exchange(last_captures_, std::nullopt));
  if (phase_ != phase::snapshot)
    return;
  if (book_->last_epoch() || ends_soon()) {
    cut_short_ = !book_->last_epoch();
    finish();
    return;
  }
  book_->open_epoch(book_->epoch() + 1, clock().now());
  // In the new epoch, the shards must wait for all workers again. So tell them that only the
  // workers that are gone are idle.
  if (idle_.empty())
    begin_epoch();
  else
    report_idle(book_->gone(), [this] { begin_epoch(); });
}

void training_run::begin_epoch() {
  if (phase_ != phase::snapshot)
    return;
  phase_ = phase::training;
  go_on();
}

epoch_report training_run::report(bool live) {
  const auto now = book_->totals(clock().now(), live);
  epoch_report result;
  result.epoch = now.epoch + 1;
  result.epochs = job().epochs();
  result.validation = options_.data.validation != nullptr;
  result.seconds = now.seconds;
  result.samples_per_second = now.samples_per_second;
  result.train_loss = now.train_loss;
  if (live)
    result.epochs_trained = now.epochs_trained;
  return result;
}

capture_context training_run::on_question(const capture_question& x) {
  capture_context result;
  result.report = report(true);
  result.report.step = x.version;
  result.cut = book_->cut(x.marks, x.newest_lease);
  return result;
}

caf::result<proto::Ack> training_run::on_lease_request(const proto::LeaseRequest& x) {
  if (auto* worker = book_->find(x.worker(), x.incarnation())) {
    if (x.number() > worker->given + most_leases_asked)
      return make_error(errc::malformed,
                        "worker/" + std::to_string(x.worker()) + " asks for lease "
                          + std::to_string(x.number()) + ", but was given "
                          + std::to_string(worker->given));
    worker->asked = std::max(worker->asked, x.number());
    go_on();
    return proto::Ack{};
  }
  return make_error(errc::fenced,
                    "worker/" + std::to_string(x.worker())
                      + " was given up; its leases are trained by others");
}

caf::result<proto::Ack> training_run::on_lease_done(const proto::LeaseDone& x) {
  auto* worker = book_->find(x.worker(), x.incarnation());
  if (!worker)
    return make_error(errc::fenced, "worker/" + std::to_string(x.worker()) + " was given up");
  if (const auto problem = problem_of(x); !problem.empty())
    return make_error(errc::malformed,
                      "worker/" + std::to_string(x.worker()) + " reports " + problem);
  switch (book_->settle(*worker, x, clock().now())) {
  case run_book::outcome::repeated:
    return proto::Ack{};
  case run_book::outcome::wrong:
    fail("worker/" + std::to_string(x.worker()) + " reports " + std::to_string(x.samples())
         + " samples for " + std::to_string(x.batches()) + " batches of lease "
         + std::to_string(x.lease()) + ", which is impossible");
    return proto::Ack{};
  case run_book::outcome::counted:
    break;
  }
  spdlog::trace("worker/{} has trained {} samples of lease {}", x.worker(), x.samples(), x.lease());
  send(options_.progress, moved_on{});
  send(options_.progress, worker_heard{worker->name(), x.progress()});
  go_on();
  return proto::Ack{};
}

void training_run::on_heartbeat(const proto::Heartbeat& x) {
  auto* worker = book_->find(x.worker(), x.incarnation());
  if (worker && problem_of(x).empty()) {
    worker->hear(x.progress());
    worker->live_samples = x.samples();
    worker->live_loss = x.loss_sum();
    worker->live_loss_samples = x.loss_samples();
    send(options_.progress, worker_heard{worker->name(), x.progress()});
  }
}

void training_run::on_tick() {
  if (phase_ == phase::done)
    return;
  delayed_send(this, tick_interval, tick{});
  send(options_.progress, state());
  check_deadline();
}

run_state training_run::state() {
  using reason = coordinator_wait::reason;
  run_state result;
  if (phase_ == phase::training) {
    const auto now = book_->totals(clock().now(), true);
    run_progress x;
    x.seconds = now.seconds;
    x.epoch = now.epoch + 1;
    x.epochs = job().epochs();
    x.samples = now.samples;
    x.epoch_samples = options_.context->data.train_records;
    x.train_loss = std::isfinite(now.train_loss) ? now.train_loss : 0;
    x.samples_per_second = now.samples_per_second;
    x.learning_rate = newest_rate(*options_.context, now, book_->present());
    result.progress = std::move(x);
    if (book_->settling() > 0) {
      result.wait.what = reason::fence;
      for (auto& y : view_.of(job_kind::ps))
        result.wait.tasks.push_back(y.task);
    } else if (book_->anybody_waits()) {
      result.wait.what = reason::leases;
      result.wait.tasks = book_->holders();
    }
  } else if (phase_ == phase::finishing && reports_missing_ > 0) {
    const auto deciders =
      view_.of(options_.context->protocol.uses_shards() ? job_kind::ps : job_kind::worker);
    result.wait.what = reason::report;
    for (std::size_t i = 0; i < reports_.size(); ++i)
      if (reports_[i].decided_size() == 0)
        result.wait.tasks.push_back(deciders[i].task);
  } else {
    result.for_captures = phase_ == phase::snapshot || phase_ == phase::finishing;
  }
  return result;
}

// -- workers that leave --------------------------------------------------------------------------

caf::result<proto::Ack> training_run::on_leave(const proto::Leave& x) {
  auto* worker = book_->find(x.worker(), x.incarnation());
  if (!worker)
    return proto::Ack{};
  if (const auto problem = problem_of(x.progress()); !problem.empty())
    return make_error(errc::malformed,
                      "worker/" + std::to_string(x.worker()) + " reports " + problem);
  const auto name = to_string(worker->name());
  worker->hear(x.progress());
  book_->leave(*worker);
  summary_.gone.push_back(worker->name());
  send(options_.progress, worker_heard{worker->name(), x.progress()});
  send(options_.progress, task_ended{worker->name(), "left"});
  if (needs_nobody())
    return proto::Ack{};
  if (phase_ == phase::opening) {
    fail_without_task(name + " left (" + x.reason() + ") before training began");
  } else if (const auto& row = options_.context->protocol; row.in_step || !row.uses_shards()) {
    fail_without_task(name + " left (" + x.reason() + "), and " + options_.context->protocol.name
                        + " needs all workers",
                      worker->name());
  } else if (!book_->anybody_present()) {
    if (stopping_)
      go_on(); // No later message of a worker will call go_on().
    else {
      summary_.lost_task = true;
      stop("all workers have left", false);
    }
  } else {
    notice(name + " left (" + x.reason() + "); the others train its samples");
    report_batch();
    let_go(*worker);
    if (too_few() && !stopping_) {
      summary_.lost_task = true;
      stop(name + " left, and fewer than elastic.min_workers are present", false);
    }
    go_on();
  }
  return proto::Ack{};
}

void training_run::on_failure(const proto::Failure& x) {
  task_name task;
  const bool known = from_proto(x.task(), task);
  if (known && task != coordinator_task && needs_nobody()) {
    if (task.job == job_kind::worker)
      summary_.gone.push_back(task);
    notice(x.reason());
    return;
  }
  if (known && x.stopped()) {
    stop(x.reason(), true);
    return;
  }
  // The run continues if only the evaluator has failed.
  if (x.goes_on() || (known && task.job == job_kind::evaluator)) {
    notice(x.reason(), x.goes_on() ? notice_level::warning : notice_level::info);
    return;
  }
  // A lost worker that is still alive reports a failure, because its gradients are refused. Ignore
  // this failure: the run continues without this worker.
  if (known && task.job == job_kind::worker && book_ && !book_->find(task.index))
    return;
  if (x.not_finite())
    fail_not_finite(x.reason(), book_ ? book_->epoch() : 0);
  else if (task_name lost; x.has_lost() && from_proto(x.lost(), lost))
    fail_without_task(x.reason(), lost);
  else
    fail_without_task(x.reason());
}

void training_run::on_task_lost(const task_lost& x) {
  if (phase_ == phase::done)
    return;
  if (needs_nobody()) {
    send(options_.progress, task_ended{x.task, "is gone"});
    return;
  }
  const auto reason = to_string(x.task) + " is gone: " + x.reason;
  if (x.task.job != job_kind::worker || phase_ == phase::opening)
    fail_without_task(reason + after_loss_of(x.task), x.task);
  else if (auto* worker = book_->find(x.task.index))
    on_worker_lost(*worker, reason);
}

void training_run::on_worker_lost(run_book::worker& who, const std::string& reason) {
  send(options_.progress, task_ended{who.name(), "is gone"});
  book_->vanish(who);
  if (phase_ == phase::finishing)
    return;
  summary_.gone.push_back(who.name());
  if (options_.context->protocol.needs_all || !book_->anybody_present() || too_few()) {
    fail_without_task(reason + after_loss_of(who.name()), who.name());
    return;
  }
  notice(reason + "; the others train its samples", notice_level::warning);
  report_batch();
  proto::Fence order;
  order.set_view(view_.number);
  order.set_worker(who.account.worker);
  order.set_incarnation(who.account.incarnation);
  fence(who.rank, order);
}

// True if an elastic run must wait for more workers.
bool training_run::too_few() const {
  return job().has_elastic() && book_->present() < job().elastic().min_workers();
}

// Tells the shards that a worker has left. All its gradients are decided, but the shards may still
// make other workers wait for it.
void training_run::let_go(const run_book::worker& who) {
  proto::Fence order;
  order.set_view(view_.number);
  order.set_worker(who.account.worker);
  order.set_incarnation(who.account.incarnation);
  order.mutable_last();
  for (auto& shard : handles_->shards)
    ask(
      this, shard, requests(), [](const proto::Fenced&) {},
      [this](const caf::error& error) {
        fail_without_task("a shard cannot be reached: " + explain(error));
      },
      order);
}

// Makes the shards refuse all later gradients of a lost worker. This takes two messages to each
// shard: see proto::Fence.
void training_run::fence(std::size_t rank, const proto::Fence& order) {
  const auto& shards = handles_->shards;
  spdlog::debug("fencing worker/{} off at {} shards", order.worker(), shards.size());
  auto answers = std::make_shared<std::vector<proto::Fenced>>(shards.size());
  auto missing = std::make_shared<std::size_t>(shards.size());
  for (std::size_t i = 0; i < shards.size(); ++i)
    ask(
      this, shards[i], requests(),
      [this, rank, order, answers, missing, i](const proto::Fenced& x) {
        (*answers)[i] = x;
        if (--*missing == 0 && phase_ != phase::done)
          on_fenced(rank, order, *answers);
      },
      [this](const caf::error& error) {
        fail_without_task("a shard cannot be reached: " + explain(error));
      },
      order);
}

void training_run::on_fenced(std::size_t rank, proto::Fence order,
                             const std::vector<proto::Fenced>& answers) {
  if (!order.has_last()) {
    *order.mutable_last() = std::ranges::max_element(answers, {}, [](auto& x) {
                              return x.last().id().sequence();
                            })->last();
    fence(rank, order);
    return;
  }
  std::vector<proto::Decided> decided;
  for (auto& x : answers)
    decided.push_back(x.decided());
  book_->settle_vanished(rank, decided);
  send(options_.progress, moved_on{});
  go_on();
}

void training_run::notice(const std::string& text, notice_level level) {
  send(options_.progress, run_notice{text, level});
}

} // namespace troupe
