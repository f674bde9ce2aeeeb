#include "actors/parameter_server/parameter_shard.hpp"

#include "messages/problems.hpp"
#include "messages/selection.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

bool same_gradient(const proto::GradientId& a, const proto::GradientId& b) {
  return a.sequence() == b.sequence() && a.worker() == b.worker()
    && a.incarnation() == b.incarnation();
}

/// True if the range is so large, and belongs to tables so much, that workers will pull only rows.
bool is_mostly_rows(const job_context& context, range where) {
  constexpr std::size_t large = std::size_t{1} << 24;
  return where.size() >= large && updates_rows(context)
    && elements_of(tables_of(*context.training, where)) > where.size() / 2;
}

} // namespace

std::shared_ptr<version_pool> make_versions(const job_context& context, range where,
                                            std::size_t workers, std::size_t held) {
  const auto captures = checkpoint_schedule::most_open_of(context.job);
  // If workers pull only rows, they hold no version, and most slots are never used.
  auto result = std::make_shared<version_pool>(where.size(), shard_slots(workers, captures) + held,
                                               is_mostly_rows(context, where));
  context.initialize(where, result->initial());
  return result;
}

std::shared_ptr<version_pool> make_averages(const job_context& context, range where) {
  return context.job.has_moving_average() ? make_versions(context, where, 0) : nullptr;
}

std::shared_ptr<piecewise_updater>
make_updates_of(const job_context& context, const shard_options& shard, const updater_maker& on) {
  const auto result = std::make_shared<piecewise_updater>(
    context, shard.in_pieces ? range_pieces::cut(shard.where) : range_pieces{shard.where},
    shard.policy->keeps_moments(), on);
  if (on && shard.in_pieces)
    result->reserve_stage();
  return result;
}

namespace {

shard_options with_updater(const job_context& context, shard_options x) {
  if (!x.updater)
    x.updater = make_updates_of(context, x);
  return x;
}

} // namespace

parameter_shard::parameter_shard(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                                 shard_options options, std::shared_ptr<version_pool> versions,
                                 std::shared_ptr<version_pool> averages)
  : super(cfg), context_(std::move(context)), options_(with_updater(*context_, std::move(options))),
    workers_(options_.view.of(job_kind::worker)), versions_(std::move(versions)),
    averages_(std::move(averages)), policy_(options_.policy), live_(policy_->live()),
    updater_(*options_.updater), pieces_(updater_.pieces(), workers_.size()),
    updates_rows_(updates_rows(*context_)), memory_(options_.where.size(), workers_.size() + 1),
    norms_(options_.view.of(job_kind::ps).size()),
    checkpoints_(checkpoint_schedule::of_checkpoints(context_->job)),
    evaluations_(checkpoint_schedule::of_evaluations(context_->job)) {}

parameter_shard::behavior_type parameter_shard::make_behavior() {
  set_exception_handler([this](std::exception_ptr& x) {
    try {
      std::rethrow_exception(x);
    } catch (const device_error& error) {
      return device_failed(error.what());
    } catch (...) {
      return default_exception_handler(this, x);
    }
  });
  await_gradients();
  return {
    in_view(this, &parameter_shard::on_push),
    in_view(this, &parameter_shard::on_push_piece),
    in_view(this, &parameter_shard::on_commit),
    in_view(this, &parameter_shard::on_push_and_commit),
    in_view(this, &parameter_shard::on_admit),
    in_view(this, &parameter_shard::on_fence),
    in_view(this, &parameter_shard::on_report),
    in_view(this, &parameter_shard::on_restore),
    in_view(this, &parameter_shard::on_partial_norm),
    in_view(this, &parameter_shard::on_step_parts),
    in_view(this, &parameter_shard::on_idle_workers),
    in_view(this, &parameter_shard::on_damping),
    [this](const step_listeners& x) {
      listeners_ = x.actors;
      shards_ = x.shards;
    },
    [this](tick) {
      retrying_ = false;
      make_updates();
    },
  };
}

void parameter_shard::on_exit() {
  for (auto& x : open_)
    x.answer.deliver(make_error(errc::link_lost, "ps/" + std::to_string(options_.index) + " ends"));
  open_.clear();
  for (auto& x : idle_answers_)
    x.deliver(make_error(errc::link_lost, "ps/" + std::to_string(options_.index) + " ends"));
  idle_answers_.clear();
  for (auto& [order, answer] : fences_)
    answer.deliver(make_error(errc::link_lost, "ps/" + std::to_string(options_.index) + " ends"));
  fences_.clear();
  listeners_.clear();
  shards_.clear();
  options_.coordinator = nullptr;
  options_.reader = nullptr;
}

// -- decisions ----------------------------------------------------------------------------------

// Refuses a gradient if its worker is not in the view. The gradient would wait here forever.
std::optional<caf::error> parameter_shard::refusal(const proto::GradientId& id,
                                                   std::string problem) const {
  if (problem.empty())
    problem = problem_of(id);
  if (std::ranges::none_of(workers_, [&](auto& x) {
        return x.task.index == id.worker() && x.incarnation == id.incarnation();
      }))
    problem = "it is not a worker of this view";
  if (problem.empty())
    return std::nullopt;
  return make_error(errc::malformed,
                    "ps/" + std::to_string(options_.index) + " refuses a gradient of worker/"
                      + std::to_string(id.worker()) + ": " + problem);
}

std::optional<caf::error> parameter_shard::misfit(const proto::GradientId& id,
                                                  const payload& gradient,
                                                  std::size_t expected) const {
  if (gradient.size() == expected * sizeof(float))
    return std::nullopt;
  return make_error(
    errc::malformed,
    "worker/" + std::to_string(id.worker()) + " pushed " + std::to_string(gradient.size())
      + " bytes to ps/" + std::to_string(options_.index) + ", which holds parameters "
      + std::to_string(options_.where.begin) + " to " + std::to_string(options_.where.end)
      + " and expects " + std::to_string(expected * sizeof(float)));
}

caf::result<proto::Pushed> parameter_shard::on_push(const proto::Push& x, const payload& gradient) {
  if (auto refused = refusal(x.id()))
    return std::move(*refused);
  if (const auto problem = problem_of(x.rows()); !problem.empty())
    return make_error(errc::malformed,
                      "a gradient of worker/" + std::to_string(x.id().worker()) + ": " + problem);
  // A worker in this process sends the whole range together with the rows.
  const auto [begin, end] = options_.where;
  const bool some = x.has_rows() && gradient.size() != options_.where.size() * sizeof(float);
  if (auto wrong = misfit(x.id(), gradient, some ? selected(x.rows(), begin, end) : end - begin))
    return std::move(*wrong);
  options_.board->count_bytes_received(gradient.size());
  if (some)
    with_rows_.insert(x.id().worker());
  else
    with_rows_.erase(x.id().worker());
  if (auto answer = decided(x.id()))
    return std::move(*answer);
  if (auto late = stage(x.id(), x.has_rows() ? spread(x.rows(), gradient) : gradient))
    return std::move(*late);
  proto::Pushed answer;
  answer.set_outcome(proto::ACCEPTED);
  answer.set_version(versions_->version());
  return answer;
}

std::optional<proto::Pushed> parameter_shard::stage(const proto::GradientId& id,
                                                    shard_gradient gradient) {
  staged_.put(id, std::move(gradient));
  // The commit may have arrived before the gradient.
  const auto early = std::ranges::find_if(
    open_, [&](auto& c) { return !c.staged && same_gradient(c.header.id(), id); });
  if (early == open_.end())
    return std::nullopt;
  const auto header = early->header;
  if (auto late = turn_away(header))
    return late;
  take(header);
  make_updates();
  return std::nullopt;
}

// Makes the gradient of the whole range from the rows that the worker sent. All other elements are
// 0.
shard_gradient parameter_shard::spread(const proto::Selection& rows, const payload& values) {
  shard_gradient result{values};
  const auto touched = std::make_shared<const range_list>(ranges_of(rows, options_.where));
  if (values.as_floats().size() != options_.where.size()) {
    result.values = memory_.take(*touched);
    scatter(rows, options_.where.begin, values.as_floats(), result.values.as_mutable_floats());
  }
  if (updates_rows_)
    result.touched = touched;
  return result;
}

caf::result<proto::Pushed> parameter_shard::on_commit(const proto::Commit& x) {
  if (auto refused = refusal(x.id(), problem_of(x, context_->gradient_samples())))
    return std::move(*refused);
  if (auto answer = decided(x.id())) {
    if (x.pauses()) {
      policy_->paused(x);
      report_admitted();
    }
    return std::move(*answer);
  }
  if (auto reason = policy_->refusal(x, versions_->version()))
    return make_error(errc::malformed,
                      "ps/" + std::to_string(options_.index) + " refuses a gradient of worker/"
                        + std::to_string(x.id().worker()) + ": " + *reason);
  proto::Pushed answer;
  answer.set_version(versions_->version());
  if (auto late = turn_away(x))
    return std::move(*late);
  if (x.quarantine() && !policy_->in_step())
    return quarantine(x);
  const bool here = x.samples() == 0 || x.quarantine() || !policy_->needs_gradients()
    || staged_.has(x.id()) || is_undecided(x.id());
  if (!here && x.again()) {
    answer.set_outcome(proto::NOT_STAGED);
    return answer;
  }
  // In synchronous protocols, a commit is answered as soon as its gradient is here. The update
  // needs the gradients of all workers, and another message (proto::Advanced) announces it.
  const bool now = policy_->in_step() && here;
  decision promise;
  if (!now) {
    promise = make_response_promise<proto::Pushed>();
    open_.push_back({x, promise, here});
  }
  if (here) {
    take(x);
    make_updates();
  }
  if (!now)
    return promise;
  answer.set_outcome(proto::ACCEPTED);
  return answer;
}

caf::result<proto::Pushed> parameter_shard::on_push_and_commit(const proto::Commit& x,
                                                               const payload& gradient) {
  if (auto refused = refusal(x.id(), problem_of(x, context_->gradient_samples())))
    return std::move(*refused);
  if (auto wrong = misfit(x.id(), gradient, options_.where.size()))
    return std::move(*wrong);
  options_.board->count_bytes_received(gradient.size());
  with_rows_.erase(x.id().worker());
  auto result = on_commit(x);
  if (std::ranges::any_of(
        open_, [&](auto& c) { return !c.staged && same_gradient(c.header.id(), x.id()); }))
    stage(x.id(), gradient);
  return result;
}

// Passes a gradient to the policy. The gradient has arrived, and the worker has committed it.
void parameter_shard::take(const proto::Commit& x) {
  for (auto& c : open_)
    c.staged = c.staged || same_gradient(c.header.id(), x.id());
  auto gradient = staged_.take(x.id());
  if (x.quarantine() || x.samples() == 0)
    gradient = {};
  if (options_.in_pieces)
    pieces_.settle(rank_of(x.id().worker()), x.id(), x.quarantine() ? 0 : x.samples(),
                   gradient.values);
  policy_->take({x, std::move(gradient)});
  // Stores the worker's newest commit, because fenced() needs it. In synchronous protocols, only
  // shard 0 stores it, if it chooses the gradients of a step for all shards.
  if (!policy_->in_step() || (policy_->chooses() && options_.index == 0))
    last_taken_[{x.id().worker(), x.id().incarnation()}] = x;
  options_.board->arrived({job_kind::worker, x.id().worker()});
  if (!policy_->in_step())
    return;
  proto::Pushed accepted;
  accepted.set_outcome(proto::ACCEPTED);
  accepted.set_version(versions_->version());
  deliver(x.id(), accepted);
}

// Drops a gradient that the worker has found to be not finite. No shard has applied a part of this
// gradient; the parts were only staged.
proto::Pushed parameter_shard::quarantine(const proto::Commit& x) {
  staged_.take(x.id());
  // on_admit() counted this gradient, because it was expected to be applied.
  const auto last = last_admitted_.find({x.id().worker(), x.id().incarnation()});
  if (last != last_admitted_.end() && last->second == x.id().sequence())
    --admitted_;
  proto::Pushed answer;
  answer.set_outcome(proto::QUARANTINED);
  answer.set_version(versions_->version());
  quarantined_samples_ += x.samples();
  skip(x.samples());
  journal_.record(x, answer);
  policy_->left_out(x);
  send_next_weights(x);
  notify_reader(x.id());
  report_admitted();
  return answer;
}

/// Notifies workers that had to wait for slower workers and may now pull again. If the message is
/// lost, the worker pulls again later, after a timeout.
void parameter_shard::report_admitted() {
  const auto [step, workers] = policy_->admitted();
  proto::Advanced news;
  news.set_view(options_.view.number);
  news.set_shard(options_.index);
  news.set_step(step);
  news.set_version(versions_->version());
  for (const auto worker : workers)
    for (std::size_t i = 0; i < listeners_.size(); ++i)
      if (workers_[i].task.index == worker)
        send(listeners_[i], news);
}

// Answers a gradient that is late: the update of its step was made without it. No shard has applied
// a part of a late gradient. Returns nothing if the gradient is in time.
std::optional<proto::Pushed> parameter_shard::turn_away(const proto::Commit& x) {
  const auto outcome = policy_->late(x, versions_->version());
  if (!outcome)
    return std::nullopt;
  staged_.take(x.id());
  proto::Pushed answer;
  answer.set_outcome(*outcome);
  answer.set_version(versions_->version());
  answer.set_staleness(staleness(x.base_version()));
  journal_.record(x, answer);
  deliver(x.id(), answer);
  return answer;
}

void parameter_shard::deliver(const proto::GradientId& id, const proto::Pushed& answer) {
  for (auto& x : open_)
    if (same_gradient(x.header.id(), id))
      x.answer.deliver(answer);
  std::erase_if(open_, [&](auto& x) { return same_gradient(x.header.id(), id); });
}

void parameter_shard::notify_reader(const proto::GradientId& id) {
  if (options_.reader)
    send(options_.reader, gradient_decided{id.worker(), id.sequence()});
}

caf::result<proto::Pushed> parameter_shard::on_admit(const proto::Admit& x) {
  if (auto refused = refusal(x.id()))
    return std::move(*refused);
  if (auto answer = journal_.find(x.id()))
    return std::move(*answer);
  proto::Pushed answer;
  answer.set_version(versions_->version());
  auto& last = last_admitted_[{x.id().worker(), x.id().incarnation()}];
  if (journal_.fenced(x.id())) {
    answer.set_outcome(proto::LOST);
    journal_.record(x.id(), answer, 0, 0);
    return answer;
  }
  if (last == x.id().sequence()) {
    answer.set_outcome(proto::ACCEPTED);
    answer.set_duplicate(true);
    return answer;
  }
  // The staleness is the number of updates since the version of the weights that the worker read.
  // Admitted gradients that are still in transit count as updates, because they will be applied.
  const auto& bounds = context_->job.async_ps();
  const auto updates = admitted_ / bounds.buffer();
  answer.set_staleness(updates - std::min(updates, x.base_version()));
  const bool stale = bounds.has_max_staleness() && answer.staleness() > bounds.max_staleness();
  answer.set_outcome(stale ? proto::REJECTED_STALE : proto::ACCEPTED);
  if (stale) {
    journal_.record(x.id(), answer, 0, 0);
  } else {
    ++admitted_;
    last = x.id().sequence();
  }
  return answer;
}

caf::result<proto::Report> parameter_shard::on_report(const proto::ReportRequest&) {
  capture_end();
  proto::Report result;
  for (auto& x : journal_.decided())
    *result.add_decided() = x;
  result.set_duplicates(journal_.duplicates());
  result.set_samples(updater_.samples() - samples_before_ - quarantined_samples_);
  result.set_staleness_sum(staleness_sum_);
  result.set_version(versions_->version() - first_version_);
  result.set_quarantined_samples(quarantined_samples_);
  result.set_captured(checkpoints_.newest());
  result.set_captured_to_evaluate(evaluations_.newest());
  return result;
}

std::optional<proto::Pushed> parameter_shard::decided(const proto::GradientId& id) {
  if (auto answer = journal_.find(id))
    return answer;
  if (!journal_.fenced(id))
    return std::nullopt;
  proto::Pushed answer;
  answer.set_outcome(proto::LOST);
  answer.set_version(versions_->version());
  // The second fence may still apply a gradient that has arrived, so LOST is not recorded yet.
  if (!staged_.has(id) && !is_undecided(id))
    journal_.record(id, answer, 0, 0);
  notify_reader(id);
  return answer;
}

// True if the gradient has been taken and waits for its update.
bool parameter_shard::is_undecided(const proto::GradientId& id) const {
  return std::ranges::any_of(policy_->undecided(),
                             [&](auto& other) { return same_gradient(other, id); });
}

// Advances the learning rate's schedule by samples whose gradient was left out.
void parameter_shard::skip(std::uint64_t samples) {
  updater_.skip(samples);
  if (live_)
    live_->skip(samples);
}

std::uint64_t parameter_shard::staleness(std::uint64_t base_version) const noexcept {
  const auto now = versions_->version();
  return now > base_version ? now - base_version : 0;
}

caf::result<proto::Ack> parameter_shard::on_idle_workers(const proto::IdleWorkers& x) {
  if (x.number() > newest_idle_) {
    newest_idle_ = x.number();
    policy_->set_idle({x.worker().begin(), x.worker().end()});
    make_updates();
  }
  // An update may be due but impossible now, because readers use all slots for versions. The
  // request is then answered after the update.
  if (policy_->in_step() || !policy_->ready())
    return proto::Ack{};
  idle_answers_.push_back(make_response_promise<proto::Ack>());
  return idle_answers_.back();
}

void parameter_shard::fail(const std::string& reason, bool not_finite) {
  proto::Failure failure;
  *failure.mutable_task() = to_proto(task_name{job_kind::ps, options_.index});
  failure.set_reason("ps/" + std::to_string(options_.index) + ": " + reason);
  failure.set_not_finite(not_finite);
  if (options_.coordinator)
    send(options_.coordinator, std::move(failure));
}

/// Reports that the shard's device failed. The coordinator gets the report first. Then the shard
/// ends and answers waiting requests with an error (on_exit).
caf::error parameter_shard::device_failed(const std::string& why) {
  const auto text = options_.device + ": " + why;
  proto::Failure failure;
  *failure.mutable_task() = to_proto(task_name{job_kind::ps, options_.index});
  failure.set_reason(text);
  if (options_.coordinator)
    send(options_.coordinator, std::move(failure));
  return make_error(errc::failed, text);
}

} // namespace troupe
