#include "actors/worker/worker.hpp"

#include "actors/leases/lease_cursor.hpp"
#include "actors/view.hpp"
#include "messages/problems.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

constexpr std::chrono::milliseconds heartbeat_interval{500};

/// The number of leases that a worker holds: the current lease and the next one.
constexpr std::size_t leases_held = 2;

} // namespace

worker::worker(caf::actor_config& cfg, worker_options options)
  : super(cfg), options_(std::move(options)) {}

worker::behavior_type worker::make_behavior() {
  return {
    in_view(this, &worker::on_lease),
    [this](const acquired& x) { on_acquired(x); },
    [this](const committed& x) { on_committed(x); },
    [this](const broken& x) { on_broken(x); },
    [this](const worker_parts& x) { on_parts(x); },
    [this](const batch_read& x) { on_batch(x); },
    [this](const input_ready& x) {
      send(options_.owner, worker_ready{options_.index, x.problem});
    },
    [this](const batch_trained& x) { on_trained(x); },
    [this](const batch_waits& x) { on_waits(x); },
    [this](const leave_run& x) { on_leave(x); },
    [this](tick) { on_heartbeat(); },
  };
}

void worker::on_exit() {
  parts_ = {};
}

void worker::on_parts(const worker_parts& x) {
  parts_ = x;
  enter(phase::idle);
  request_leases();
  delayed_send(this, heartbeat_interval, tick{});
}

template <class Header>
Header worker::identified() const {
  Header result;
  result.set_view(options_.view);
  result.set_worker(options_.index);
  result.set_incarnation(options_.incarnation);
  return result;
}

proto::Progress worker::progress() {
  const auto now = clock().now();
  const auto& board = *options_.board;
  proto::Progress result;
  result.set_produced(produced_);
  result.set_requeued(requeued_);
  result.set_applied(applied_);
  result.set_samples(samples_);
  result.set_limited(limited_);
  result.set_quarantined(quarantined_);
  result.set_staleness_sum(staleness_sum_);
  for (const auto count : staleness_)
    result.add_staleness(count);
  if (gradient_norm_)
    result.set_gradient_norm(*gradient_norm_);
  result.set_computing(board.seconds_in(proto::TaskStatus::COMPUTING, now));
  result.set_exchanging_while_computing(board.seconds_exchanging_while_computing(now));
  result.set_waiting_for_lease(board.seconds_in(proto::TaskStatus::WAITING_FOR_LEASE, now));
  result.set_waiting_for_data(board.seconds_in(proto::TaskStatus::WAITING_FOR_DATA, now));
  result.set_waiting_for_weights(board.seconds_in(proto::TaskStatus::WAITING_FOR_WEIGHTS, now));
  result.set_waiting_for_update(board.seconds_in(proto::TaskStatus::WAITING_FOR_UPDATE, now));
  return result;
}

void worker::enter(phase x) {
  phase_ = x;
  const auto what = [&] {
    switch (x) {
    case phase::idle:
      return proto::TaskStatus::WAITING_FOR_LEASE;
    case phase::reading:
      return proto::TaskStatus::WAITING_FOR_DATA;
    case phase::acquiring:
      return proto::TaskStatus::WAITING_FOR_WEIGHTS;
    case phase::computing:
      return waits_for_sums_ ? proto::TaskStatus::WAITING_FOR_UPDATE : proto::TaskStatus::COMPUTING;
    case phase::committing:
      return proto::TaskStatus::WAITING_FOR_UPDATE;
    case phase::returning:
      return proto::TaskStatus::WAITING_FOR_LEASE;
    default:
      return proto::TaskStatus::DOING_UNSET;
    }
  }();
  options_.board->enter(what, clock().now());
}

void worker::on_heartbeat() {
  if (phase_ == phase::left)
    return;
  auto beat = identified<proto::Heartbeat>();
  *beat.mutable_progress() = progress();
  beat.set_samples(lease_samples_);
  beat.set_loss_sum(lease_loss_);
  beat.set_loss_samples(lease_loss_samples_);
  send(options_.coordinator, std::move(beat));
  delayed_send(this, heartbeat_interval, tick{});
}

// -- leases -------------------------------------------------------------------------------------

void worker::request_leases() {
  while (!leaving_ && leases_.size() + (leases_requested_ - leases_received_) < leases_held) {
    auto question = identified<proto::LeaseRequest>();
    question.set_number(++leases_requested_);
    ask(
      this, options_.coordinator, options_.requests, [](const proto::Ack&) {},
      [this](const caf::error& error) { fail(self() + " cannot get a lease: " + explain(error)); },
      question);
  }
}

void worker::on_lease(const proto::Lease& x) {
  if (x.id() <= last_lease_)
    return; // The message is a repetition.
  last_lease_ = x.id();
  if (const auto problem = problem_of(x);
      !problem.empty() || leases_received_ == leases_requested_) {
    fail(self() + " was given an invalid lease" + (problem.empty() ? ", unasked" : ": " + problem));
    return;
  }
  ++leases_received_;
  leases_.push_back(x);
  if (phase_ == phase::idle && !undecided_)
    next_step();
  else
    read_ahead();
}

void worker::report_front_lease(std::function<void()> then, bool drops_next) {
  auto done = identified<proto::LeaseDone>();
  done.set_lease(leases_.front().id());
  done.set_batches(batch_);
  done.set_samples(lease_samples_);
  done.set_loss_sum(lease_loss_);
  done.set_loss_samples(lease_loss_samples_);
  done.set_drops_next(drops_next);
  *done.mutable_progress() = progress();
  ask(
    this, options_.coordinator, options_.requests, [then](const proto::Ack&) { then(); },
    [this](const caf::error& error) { fail(self() + " cannot report a lease: " + explain(error)); },
    done);
  leases_.pop_front();
  batch_ = lease_samples_ = lease_loss_samples_ = 0;
  lease_loss_ = 0;
}

// Gives the rest of the first lease back, and continues when the coordinator has answered. The
// coordinator must get this report before a gradient of a later lease is applied. Otherwise, a
// checkpoint would count all batches of this lease as trained, because it counts all batches of a
// worker before its last applied gradient.
void worker::give_back_lease(bool drops_next) {
  enter(phase::returning);
  data_.reset();
  ahead_.clear();
  report_front_lease(
    [this] {
      if (phase_ == phase::returning)
        next_step();
    },
    drops_next);
}

// -- a step -------------------------------------------------------------------------------------

void worker::next_step() {
  if (!leases_.empty() && batch_ == batches_of(leases_.front()))
    report_front_lease([] {});
  if (leaving_) {
    leave();
    return;
  }
  request_leases();
  if (leases_.empty()) {
    if (phase_ != phase::idle)
      enter(phase::idle);
    return;
  }
  ++produced_;
  begun_ = sent_ = false;
  enter(phase::reading);
  if (!data_) // If there is data, its gradient was rejected and is computed again.
    take_batch();
  read_ahead();
  acquire_if_read();
}

std::uint64_t worker::read(const proto::Lease& lease, std::uint64_t batch) {
  const auto where = batch_of(lease, batch);
  send(parts_.input, read_batch{++tickets_, lease.epoch(), where.begin, where.end});
  return tickets_;
}

void worker::take_batch() {
  if (!ahead_.empty() && ahead_.front().lease == leases_.front().id()
      && ahead_.front().batch == batch()) {
    wanted_ = ahead_.front().ticket;
    data_ = std::move(ahead_.front().data);
    ahead_.pop_front();
  } else {
    ahead_.clear();
    wanted_ = read(leases_.front(), batch());
  }
}

void worker::read_ahead() {
  auto lease = leases_.begin();
  auto next = batch();
  if (!ahead_.empty()) {
    lease = std::ranges::find(leases_, ahead_.back().lease, &proto::Lease::id);
    next = ahead_.back().batch;
  }
  while (ahead_.size() < options_.prefetch && lease != leases_.end()) {
    if (++next == batches_of(*lease)) {
      ++lease;
      next = 0;
    }
    if (lease != leases_.end())
      ahead_.push_back({lease->id(), next, read(*lease, next), std::nullopt});
  }
}

void worker::on_batch(const batch_read& x) {
  if (x.ticket == wanted_) {
    data_ = x;
    acquire_if_read();
    return;
  }
  const auto found = std::ranges::find(ahead_, x.ticket, &read_ahead_batch::ticket);
  if (found != ahead_.end())
    found->data = x;
}

void worker::acquire_if_read() {
  if (phase_ != phase::reading || !data_)
    return;
  enter(phase::acquiring);
  send(parts_.synchronizer,
       acquire{undecided_ ? clock_.next() : clock_, leases_.front().id(), batch(), data_->touched});
}

void worker::on_acquired(const acquired& x) {
  if (phase_ != phase::acquiring)
    return;
  if (begun_) {
    send(parts_.trainer, more_weights{x.step, x.ranges, x.last});
  } else if (leaving_) {
    enter(phase::committing);
    send(parts_.synchronizer, abandon{x.step});
    return;
  } else {
    begun_ = true;
    send(parts_.trainer, train_batch{x.step, x.ranges, x.last, *data_, next_batch_read(), x.where});
  }
  if (x.last)
    enter(phase::computing);
}

std::optional<next_batch> worker::next_batch_read() const {
  if (ahead_.empty() || !ahead_.front().data)
    return std::nullopt;
  const auto& x = *ahead_.front().data;
  return next_batch{x.ticket, x.batches.front()};
}

void worker::on_waits(const batch_waits& x) {
  waits_for_sums_ = x.waits;
  if (phase_ == phase::computing)
    enter(phase_);
}

void worker::on_trained(const batch_trained& x) {
  enter(phase::committing);
  trained_ = x;
  sent_ = true;
  const bool more = !leaving_ && (more_in_lease() || leases_.size() > 1);
  send(parts_.synchronizer,
       commit{x.step, x.samples, x.loss_sum, x.squared_norm, !more, x.loss_scale});
  go_ahead();
}

bool worker::more_in_lease() const {
  return batch() + 1 < batches_of(leases_.front());
}

// The next step must belong to the same lease, because a lease is reported when all its gradients
// are decided.
bool worker::go_ahead() {
  if (!options_.overlaps || leaving_ || undecided_ || !sent_ || !more_in_lease())
    return false;
  undecided_ = std::move(trained_);
  data_.reset();
  next_step();
  return true;
}

// Handles the decision about the previous gradient, which arrives while the next step runs
// (`overlaps`).
void worker::on_undecided(const committed& x) {
  if (x.outcome == proto::APPLIED)
    count_applied(x, *undecided_);
  else if (x.outcome == proto::QUARANTINED)
    count_quarantined(*undecided_);
  else
    fail(self() + ": the coordinator considers this worker lost, so it refused its gradient");
  if (phase_ == phase::left)
    return;
  count_trained(*undecided_);
  undecided_.reset();
  options_.board->count_step(clock().now());
  if (phase_ == phase::idle)
    next_step(); // The worker leaves, and waited for this decision.
  else if (phase_ == phase::committing)
    go_ahead();
}

void worker::on_committed(const committed& x) {
  if (undecided_ && x.step.value == undecided_->step.value) {
    on_undecided(x);
    return;
  }
  if (phase_ != phase::committing)
    return;
  spdlog::trace("worker/{}: step {} of {} samples: {}, {} updates stale", options_.index,
                x.step.value, trained_.samples, proto::Outcome_Name(x.outcome), x.staleness);
  switch (x.outcome) {
  case proto::APPLIED:
    count_applied(x, trained_);
    count_trained(trained_);
    data_.reset();
    break;
  case proto::QUARANTINED:
    count_quarantined(trained_);
    if (phase_ == phase::left)
      return;
    count_trained(trained_);
    data_.reset();
    break;
  case proto::REJECTED_STALE:
    break;
  case proto::LATE_DROPPED:
  case proto::LATE_REQUEUED:
    options_.board->count_step(clock().now());
    give_back_lease(x.outcome == proto::LATE_DROPPED);
    return;
  case proto::REQUEUED:
    ++requeued_;
    break;
  default:
    fail(self() + ": the coordinator considers this worker lost, so it refused its gradient");
    return;
  }
  options_.board->count_step(clock().now());
  next_step();
}

void worker::count_trained(const batch_trained& done) {
  lease_samples_ += done.samples;
  ++batch_;
  clock_ = clock_.next();
}

// Counts a gradient that is not finite. Its batch counts as trained, because training it again
// would give the same gradient.
void worker::count_quarantined(const batch_trained& done) {
  ++quarantined_;
  const auto text = describe_bad_step(done);
  if (++bad_in_a_row_ >= options_.max_bad) {
    fail(text
           + (options_.max_bad > 1 ? ". That makes " + std::to_string(bad_in_a_row_)
                  + " bad gradients in a row (max_bad: " + std::to_string(options_.max_bad) + ")"
                                   : std::string{}),
         true);
    return;
  }
  proto::Failure warning;
  *warning.mutable_task() = to_proto(task_name{job_kind::worker, options_.index});
  warning.set_reason(text + ". " + describe_batch() + " is left out, and the run continues");
  warning.set_not_finite(true);
  warning.set_goes_on(true);
  send(options_.coordinator, std::move(warning));
}

std::string worker::describe_bad_step(const batch_trained& done) const {
  const auto step = self() + ": the ";
  const auto which = " of its step " + std::to_string(produced_ - (undecided_ ? 1 : 0));
  if (std::isfinite(done.loss_sum) && std::isfinite(done.squared_norm))
    return step + "sum of all workers' gradients" + which
      + " is not finite, although each gradient is";
  return step + (std::isfinite(done.loss_sum) ? "gradient" : "loss") + which + " is not finite"
    + (done.not_finite.empty() ? "" : "; the first tensor with such a value: " + done.not_finite);
}

std::string worker::describe_batch() const {
  const auto where = batch_of(leases_.front(), batch_);
  return "The batch at positions " + std::to_string(where.begin) + " to "
    + std::to_string(where.end) + " of epoch " + std::to_string(leases_.front().epoch() + 1);
}

void worker::count_applied(const committed& x, const batch_trained& done) {
  lease_loss_ += done.loss_sum;
  lease_loss_samples_ += done.samples;
  ++applied_;
  limited_ += x.limited ? 1 : 0;
  bad_in_a_row_ = 0;
  samples_ += done.samples;
  staleness_sum_ += x.staleness;
  ++staleness_[staleness_bucket(x.staleness)];
  gradient_norm_ = x.gradient_norm;
}

// -- end ----------------------------------------------------------------------------------------

void worker::on_leave(const leave_run& x) {
  if (leaving_)
    return;
  leaving_ = true;
  leave_reason_ = x.reason;
  // While the worker still reads the batch, the synchronizer does not know the step. So the worker
  // can drop the step.
  if (phase_ == phase::reading) {
    ++requeued_;
    enter(phase::idle);
  }
  if (phase_ == phase::idle && !undecided_)
    next_step();
}

void worker::leave() {
  enter(phase::left);
  const auto say_goodbye = [this] {
    auto goodbye = identified<proto::Leave>();
    goodbye.set_reason(leave_reason_);
    *goodbye.mutable_progress() = progress();
    ask(
      this, options_.coordinator, options_.requests,
      [this](const proto::Ack&) { send(options_.owner, worker_left{}); },
      [this](const caf::error&) { send(options_.owner, worker_left{}); }, goodbye);
  };
  if (leases_.empty())
    say_goodbye();
  else
    report_front_lease(say_goodbye);
}

void worker::on_broken(const broken& x) {
  if (x.not_finite)
    fail(self() + ", step " + std::to_string(produced_) + ": " + x.reason, true);
  else
    fail(x.reason, false, x.lost);
}

void worker::fail(const std::string& reason, bool not_finite,
                  const std::optional<task_name>& lost) {
  if (phase_ == phase::left)
    return;
  enter(phase::left);
  proto::Failure failure;
  *failure.mutable_task() = to_proto(task_name{job_kind::worker, options_.index});
  failure.set_reason(reason);
  failure.set_not_finite(not_finite);
  if (lost)
    *failure.mutable_lost() = to_proto(*lost);
  send(options_.coordinator, std::move(failure));
}

} // namespace troupe
