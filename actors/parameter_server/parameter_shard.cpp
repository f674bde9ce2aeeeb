#include "actors/parameter_server/parameter_shard.hpp"

#include "actors/link/sent_together.hpp"
#include "actors/model/moving_average.hpp"

#include "kernels/optimizers/gradient_norm.hpp"
#include "messages/problems.hpp"
#include "messages/scheduler.hpp"
#include "messages/selection.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {

namespace {

/// If readers hold all versions: time until the shard checks again.
constexpr std::chrono::microseconds slot_poll{500};

bool same_gradient(const proto::GradientId& a, const proto::GradientId& b) {
  return a.sequence() == b.sequence() && a.worker() == b.worker()
    && a.incarnation() == b.incarnation();
}

} // namespace

std::shared_ptr<version_pool> make_versions(const job_context& context, range where,
                                            std::size_t workers, std::size_t held) {
  const auto captures = checkpoint_schedule::most_open_of(context.job);
  auto result = std::make_shared<version_pool>(where.size(), shard_slots(workers, captures) + held);
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

// Gradients of unknown workers would wait here forever, so they are refused.
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
  const auto [begin, end] = options_.where;
  if (auto wrong = misfit(x.id(), gradient, selected(x.rows(), begin, end)))
    return std::move(*wrong);
  options_.board->count_bytes_received(gradient.size());
  if (x.has_rows())
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

std::optional<proto::Pushed> parameter_shard::stage(const proto::GradientId& id, payload gradient) {
  staged_.put(id, std::move(gradient));
  // The commit may have arrived first.
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

// Elements that were not sent are 0.
payload parameter_shard::spread(const proto::Selection& rows, const payload& values) const {
  auto result = payload::floats(options_.where.size());
  const auto all = result.as_mutable_floats();
  std::ranges::fill(all, 0.0F);
  scatter(rows, options_.where.begin, values.as_floats(), all);
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
    || staged_.has(x.id()) || std::ranges::any_of(policy_->parts(), [&](auto& p) {
                      return same_gradient(p.header.id(), x.id());
                    });
  if (!here && x.again()) {
    answer.set_outcome(proto::NOT_STAGED);
    return answer;
  }
  // In step, the update waits for other workers and is announced later.
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

// The gradient has arrived.
void parameter_shard::take(const proto::Commit& x) {
  for (auto& c : open_)
    c.staged = c.staged || same_gradient(c.header.id(), x.id());
  auto gradient = staged_.take(x.id());
  if (x.quarantine() || x.samples() == 0)
    gradient = {};
  if (options_.in_pieces)
    pieces_.settle(rank_of(x.id().worker()), x.id(), x.quarantine() ? 0 : x.samples(), gradient);
  policy_->take({x, std::move(gradient)});
  // Shard 0 decides for all shards which gradients of a step count.
  if (!policy_->in_step() || (policy_->chooses() && options_.index == 0))
    last_taken_[{x.id().worker(), x.id().incarnation()}] = x;
  if (!policy_->in_step())
    return;
  options_.board->arrived({job_kind::worker, x.id().worker()});
  proto::Pushed accepted;
  accepted.set_outcome(proto::ACCEPTED);
  accepted.set_version(versions_->version());
  deliver(x.id(), accepted);
}

// No part of the gradient was applied anywhere; it was only staged.
proto::Pushed parameter_shard::quarantine(const proto::Commit& x) {
  staged_.take(x.id());
  // The gradient was counted as one that will be applied.
  const auto last = last_admitted_.find({x.id().worker(), x.id().incarnation()});
  if (last != last_admitted_.end() && last->second == x.id().sequence())
    --admitted_;
  proto::Pushed answer;
  answer.set_outcome(proto::QUARANTINED);
  answer.set_version(versions_->version());
  quarantined_samples_ += x.samples();
  journal_.record(x.id(), answer, x.lease(), x.batch());
  policy_->left_out(x);
  send_next_weights(x);
  notify_reader(x.id());
  report_admitted();
  return answer;
}

/// If the message is lost, the worker still pulls again, but later.
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

// The update of its step was made without this gradient. No part of it was applied anywhere.
std::optional<proto::Pushed> parameter_shard::turn_away(const proto::Commit& x) {
  const auto outcome = policy_->late(x, versions_->version());
  if (!outcome)
    return std::nullopt;
  staged_.take(x.id());
  proto::Pushed answer;
  answer.set_outcome(*outcome);
  answer.set_version(versions_->version());
  answer.set_staleness(staleness(x.base_version()));
  journal_.record(x.id(), answer, x.lease(), x.batch());
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
  // An admitted gradient will be applied, so it counts even before it arrives.
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

caf::result<proto::Fenced> parameter_shard::on_fence(const proto::Fence& x) {
  proto::GradientId of;
  of.set_worker(x.worker());
  of.set_incarnation(x.incarnation());
  of.set_sequence(1);
  const auto& last_id = x.last().id();
  const bool own = last_id.sequence() == 0
    || (last_id.worker() == x.worker() && last_id.incarnation() == x.incarnation());
  if (auto refused = refusal(of, own ? "" : "it is fenced off with a gradient of another worker"))
    return std::move(*refused);
  spdlog::debug("ps/{}: worker/{} is fenced off", options_.index, x.worker());
  journal_.fence(x.worker(), x.incarnation());
  if (x.has_last()) {
    finish(x);
  } else if (policy_->withdraw(x.worker())) {
    last_taken_.erase({x.worker(), x.incarnation()});
    make_updates();
  }
  std::vector<proto::GradientId> unstaged;
  for (auto& c : open_)
    if (!c.staged && c.header.id().worker() == x.worker()
        && c.header.id().incarnation() == x.incarnation())
      unstaged.push_back(c.header.id());
  for (auto& id : unstaged)
    if (auto answer = decided(id))
      deliver(id, *answer);
  if (!decides_later(x))
    return fenced(x);
  fences_.emplace_back(x, make_response_promise<proto::Fenced>());
  return fences_.back().second;
}

bool parameter_shard::decides_later(const proto::Fence& x) const {
  return x.has_last() && std::ranges::any_of(policy_->parts(), [&](auto& part) {
           const auto& id = part.header.id();
           return id.worker() == x.worker() && id.incarnation() == x.incarnation();
         });
}

void parameter_shard::answer_fences() {
  std::erase_if(fences_, [this](auto& x) {
    if (decides_later(x.first))
      return false;
    x.second.deliver(fenced(x.first));
    return true;
  });
}

proto::Fenced parameter_shard::fenced(const proto::Fence& x) {
  const incarnation_key key{x.worker(), x.incarnation()};
  proto::Fenced result;
  *result.mutable_decided() = journal_.decided(x.worker(), x.incarnation());
  if (const auto last = last_taken_.find(key); last != last_taken_.end())
    *result.mutable_last() = last->second;
  if (!x.has_last())
    return result;
  last_taken_.erase(key);
  // If an admitted gradient has not arrived by now, it never will.
  auto last = last_admitted_.find(key);
  if (last != last_admitted_.end()) {
    if (last->second > result.decided().sequence())
      --admitted_;
    last_admitted_.erase(last);
  }
  return result;
}

// The worker committed its last gradient at another shard and was lost before it could commit it
// here.
void parameter_shard::finish(const proto::Fence& x) {
  if (x.last().id().sequence() > 0 && staged_.has(x.last().id())) {
    auto header = x.last();
    header.set_base_version(std::min(header.base_version(), versions_->version()));
    take(header);
  }
  staged_.drop(x.worker(), x.incarnation());
  policy_->settle(x.worker(), x.last().id().sequence());
  make_updates();
  policy_->forget(x.worker(), x.incarnation());
  report_admitted();
}

caf::result<proto::Report> parameter_shard::on_report(const proto::ReportRequest&) {
  capture_end();
  proto::Report result;
  for (auto& x : journal_.decided())
    *result.add_decided() = x;
  result.set_duplicates(journal_.duplicates());
  result.set_samples(updater_.samples() - samples_before_);
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
  journal_.record(id, answer, 0, 0);
  notify_reader(id);
  return answer;
}

std::uint64_t parameter_shard::staleness(std::uint64_t base_version) const noexcept {
  const auto now = versions_->version();
  return now > base_version ? now - base_version : 0;
}

// -- updates ------------------------------------------------------------------------------------

// find_slot() has reserved the slot.
void parameter_shard::advance() {
  proto::Advanced news;
  news.set_view(options_.view.number);
  news.set_shard(options_.index);
  news.set_step(versions_->version());
  const auto before = versions_->published();
  const bool is_prepared = prepared();
  auto update = is_prepared ? planned_update{{}, pieces_.samples(), {}}
                            : policy_->plan(before, versions_->version());
  news.set_samples(update.samples);
  if (norm_shared_) {
    const double norm = update.samples == 0
      ? 0
      : std::sqrt(norms_.sum(news.step())) / static_cast<double>(update.samples);
    news.set_gradient_norm(norm);
    update.terms.factor *= clip_factor(context_->rule.clip_norm, norm);
  }
  const std::vector<contribution> parts(policy_->parts().begin(), policy_->parts().end());
  std::vector<proto::Pushed> answers;
  for (const auto& part : parts)
    answers.push_back(decide(part));
  if (update.complete)
    make_version(update, is_prepared);
  pieces_.clear();
  norms_.forget(news.step());
  norm_shared_ = parts_sent_ = false;
  policy_->made(before, versions_->published(), answers.empty() ? proto::Pushed{} : answers[0]);
  // All admitted gradients are applied.
  if (parts.empty())
    admitted_ = versions_->version() * context_->job.async_ps().buffer();
  news.set_version(versions_->version());
  answer_workers(parts, answers, news);
  report_admitted();
  if (const auto pacing = policy_->pacing())
    options_.board->set_pacing(*pacing);
  send_damping();
  if (update.complete)
    capture_if_due();
  answer_fences();
}

// A worker that gets its weights and the answer together wakes once.
void parameter_shard::answer_workers(const std::vector<contribution>& parts,
                                     std::vector<proto::Pushed>& answers,
                                     const proto::Advanced& news) {
  const sent_together both;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto& answer = answers[i];
    answer.set_version(versions_->version());
    if (const auto pacing = policy_->pacing())
      *answer.mutable_pacing() = *pacing;
    const auto& header = parts[i].header;
    journal_.record(header.id(), answer, header.lease(), header.batch());
    send_next_weights(header);
    deliver(header.id(), answer);
    notify_reader(header.id());
  }
  if (policy_->in_step())
    for (std::size_t rank = 0; rank < listeners_.size(); ++rank) {
      send_whole(rank);
      send(listeners_[rank], news);
    }
}

proto::Pushed parameter_shard::decide(const contribution& x) {
  proto::Pushed answer;
  answer.set_outcome(x.header.quarantine() ? proto::QUARANTINED : proto::APPLIED);
  if (x.header.quarantine())
    quarantined_samples_ += x.header.samples();
  else if (!policy_->in_step())
    answer.set_staleness(staleness(x.header.base_version()));
  staleness_sum_ += answer.staleness();
  return answer;
}

bool parameter_shard::clips_in_step() const {
  return context_->rule.clip_norm > 0 && policy_->in_step();
}

// Shard 0 sends its choice of gradients for the next update to all shards.
void parameter_shard::send_parts() {
  if (options_.index != 0 || !policy_->chooses() || std::exchange(parts_sent_, true))
    return;
  proto::StepParts news;
  news.set_view(options_.view.number);
  news.set_step(versions_->version());
  for (auto& part : policy_->parts())
    *news.add_part() = part.header.id();
  for (auto& x : workers_)
    options_.board->arrived(x.task);
  for (std::size_t i = 1; i < shards_.size(); ++i)
    ask(
      this, shards_[i], options_.requests, [](const proto::Ack&) {},
      [this, i](const caf::error& error) {
        fail("cannot send to " + to_string(task_name{job_kind::ps, static_cast<std::uint32_t>(i)})
             + " which gradients make an update: " + explain(error));
      },
      news);
}

caf::result<proto::Ack> parameter_shard::on_step_parts(const proto::StepParts& x) {
  if (!policy_->chooses() || options_.index == 0)
    return make_error(
      errc::malformed,
      "ps/" + std::to_string(options_.index)
        + " received a choice of gradients for an update, but it chooses them itself");
  // A step begins once all shards have made the previous one.
  if (x.step() > versions_->version() + 1)
    return make_error(errc::malformed,
                      "ps/" + std::to_string(options_.index) + " is at step "
                        + std::to_string(versions_->version())
                        + ", but received the gradients of step " + std::to_string(x.step()));
  if (x.step() < versions_->version())
    return proto::Ack{};
  policy_->choose(x.step(), {x.part().begin(), x.part().end()});
  if (x.step() == versions_->version())
    for (auto& worker : workers_)
      if (std::ranges::none_of(x.part(),
                               [&](auto& id) { return id.worker() == worker.task.index; }))
        options_.board->arrived(worker.task);
  make_updates();
  return proto::Ack{};
}

void parameter_shard::send_damping() {
  auto news = policy_->new_damping();
  if (!news)
    return;
  news->set_view(options_.view.number);
  for (std::size_t i = 1; i < shards_.size(); ++i)
    send(shards_[i], *news);
}

void parameter_shard::on_damping(const proto::Damping& x) {
  if (const auto problem = problem_of(x); problem.empty())
    policy_->set_damping(x);
  else
    spdlog::warn("ps/{} ignores {} from ps/0", options_.index, problem);
}

caf::result<proto::Ack> parameter_shard::on_idle_workers(const proto::IdleWorkers& x) {
  if (x.number() > newest_idle_) {
    newest_idle_ = x.number();
    policy_->set_idle({x.worker().begin(), x.worker().end()});
    make_updates();
  }
  // Readers may hold all versions.
  if (policy_->in_step() || !policy_->ready())
    return proto::Ack{};
  idle_answers_.push_back(make_response_promise<proto::Ack>());
  return idle_answers_.back();
}

// The norm of the step's gradient needs the parts of all shards.
void parameter_shard::share_norm() {
  if (!clips_in_step() || norm_shared_ || !policy_->ready())
    return;
  const auto update = policy_->plan(versions_->published(), versions_->version());
  // With backup workers, another shard may have samples of a worker that was lost.
  if (update.samples == 0 && !policy_->chooses())
    return;
  proto::PartialNorm part;
  part.set_view(options_.view.number);
  part.set_step(versions_->version());
  part.set_shard(options_.index);
  part.set_squares(squared_norm(context_->parameters(), options_.where, update.gradient));
  if (!std::isfinite(part.squares())) {
    fail("the gradient of step " + std::to_string(part.step() + 1)
           + " is not finite after summation, first in "
           + first_not_finite(context_->parameters(), options_.where, update.gradient),
         true);
    return;
  }
  norm_shared_ = true;
  norms_.add(part.step(), part.step(), options_.index, part.squares());
  for (std::size_t i = 0; i < shards_.size(); ++i)
    if (i != options_.index)
      send_norm(i, part);
}

void parameter_shard::send_norm(std::size_t shard, const proto::PartialNorm& part) {
  const task_name other{job_kind::ps, static_cast<std::uint32_t>(shard)};
  if (!norms_.has(part.step(), shard))
    options_.board->await(other);
  ask(
    this, shards_[shard], options_.requests, [](const proto::Ack&) {},
    [this, other](const caf::error& error) {
      fail("cannot send to " + to_string(other)
           + " a part of the gradient's norm: " + explain(error));
    },
    part);
}

caf::result<proto::Ack> parameter_shard::on_partial_norm(const proto::PartialNorm& x) {
  if (const auto problem = problem_of(x); !problem.empty())
    return make_error(errc::malformed, "ps/" + std::to_string(x.shard()) + " reports " + problem);
  if (!norms_.add(versions_->version(), x.step(), x.shard(), x.squares()))
    return make_error(errc::malformed,
                      "ps/" + std::to_string(x.shard()) + " reports the norm of step "
                        + std::to_string(x.step()) + ", but ps/" + std::to_string(options_.index)
                        + " is at step " + std::to_string(versions_->version()));
  if (norms_.has(versions_->version(), x.shard()))
    options_.board->arrived({job_kind::ps, x.shard()});
  make_updates();
  return proto::Ack{};
}

/// True if everything for the next update has arrived.
bool parameter_shard::update_ready() {
  if (!policy_->ready())
    return false;
  send_parts();
  share_norm();
  return !norm_shared_ || norms_.complete(versions_->version());
}

void parameter_shard::fail(const std::string& reason, bool not_finite) {
  proto::Failure failure;
  *failure.mutable_task() = to_proto(task_name{job_kind::ps, options_.index});
  failure.set_reason("ps/" + std::to_string(options_.index) + ": " + reason);
  failure.set_not_finite(not_finite);
  if (options_.coordinator)
    send(options_.coordinator, std::move(failure));
}

/// The coordinator learns of it before waiting requests are answered.
caf::error parameter_shard::device_failed(const std::string& why) {
  const auto text = options_.device + ": " + why;
  proto::Failure failure;
  *failure.mutable_task() = to_proto(task_name{job_kind::ps, options_.index});
  failure.set_reason(text);
  if (options_.coordinator)
    send(options_.coordinator, std::move(failure));
  return make_error(errc::failed, text);
}

// -- versions -----------------------------------------------------------------------------------

// versions_->begin() has reserved the slot. An update without samples does not change the weights.
void parameter_shard::make_version(const planned_update& update, bool is_prepared) {
  options_.board->enter(proto::TaskStatus::UPDATING, clock().now());
  const auto old = versions_->published();
  const auto updated = versions_->next();
  if (is_prepared) {
    updater_.publish();
    slot_reserved_ = false;
    send_piece(last_piece_, versions_->version() + 1);
  } else if (live_) {
    updater_.skip(update.samples);
    if (averages_)
      live_->read(updated);
  } else if (update.samples > 0)
    updater_.apply(old, update.gradient, update.samples, updated, update.terms);
  else
    std::ranges::copy(old, updated.begin());
  publish(versions_->version() + 1);
  renew_turn();
  options_.board->count_step(clock().now());
  await_gradients();
}

/// Publishes the next weights, and their average first: a reader of averages sees each version.
void parameter_shard::publish(std::uint64_t version) {
  if (averages_) {
    average_weights(*context_, options_.where, version, averages_->published(), versions_->next(),
                    averages_->next());
    averages_->publish(version);
  }
  versions_->publish(version);
}

void parameter_shard::await_gradients() {
  if (policy_->in_step())
    for (auto& x : workers_)
      options_.board->await(x.task);
  options_.board->enter(proto::TaskStatus::WAITING_FOR_GRADIENTS, clock().now());
}

bool parameter_shard::find_slot() {
  prepare_pieces();
  if (!prepared())
    drop_pieces();
  const bool found = (prepared() || versions_->begin()) && (!averages_ || averages_->begin());
  if (!found)
    options_.board->enter(proto::TaskStatus::WAITING_FOR_READERS, clock().now());
  return found;
}

void parameter_shard::make_updates() {
  bool ready = update_ready();
  while (ready && find_slot()) {
    advance();
    ready = update_ready();
  }
  if (ready) {
    retry_soon();
    return;
  }
  for (auto& x : std::exchange(idle_answers_, {}))
    x.deliver(proto::Ack{});
  if (norm_shared_)
    options_.board->enter(proto::TaskStatus::WAITING_FOR_NORM, clock().now());
  else
    options_.board->enter(proto::TaskStatus::WAITING_FOR_GRADIENTS, clock().now());
}

void parameter_shard::retry_soon() {
  if (retrying_)
    return;
  retrying_ = true;
  delayed_send(this, slot_poll, tick{});
}

} // namespace troupe
