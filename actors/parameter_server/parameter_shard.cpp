#include "actors/parameter_server/parameter_shard.hpp"

#include "actors/checkpoint/send_capture.hpp"

#include "kernels/gradient_norm.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {

namespace {

/// Readers hold all versions: how soon to look again.
constexpr std::chrono::microseconds slot_poll{500};

} // namespace

std::shared_ptr<version_pool> make_versions(const job_context& context, range where,
                                            std::size_t workers) {
  const auto captures = checkpoint_schedule::most_open_of(context.job);
  auto result = std::make_shared<version_pool>(where.size(), shard_slots(workers, captures));
  context.initialize(where, result->initial());
  return result;
}

parameter_shard::parameter_shard(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                                 shard_options options, std::shared_ptr<version_pool> versions)
  : super(cfg), context_(std::move(context)), options_(std::move(options)),
    workers_(options_.view.of(job_kind::worker)), versions_(std::move(versions)),
    updater_(*context_, options_.where), step_(workers_.size(), options_.where.size()),
    norms_(options_.view.of(job_kind::ps).size()),
    checkpoints_(checkpoint_schedule::of_checkpoints(context_->job)),
    evaluations_(checkpoint_schedule::of_evaluations(context_->job)) {}

parameter_shard::behavior_type parameter_shard::make_behavior() {
  await_gradients();
  return {
    in_view(this, &parameter_shard::on_push),
    in_view(this, &parameter_shard::on_admit),
    in_view(this, &parameter_shard::on_fence),
    in_view(this, &parameter_shard::on_report),
    in_view(this, &parameter_shard::on_restore),
    in_view(this, &parameter_shard::on_partial_norm),
    [this](const step_listeners& x) {
      listeners_ = x.actors;
      shards_ = x.shards;
    },
    [this](tick) {
      retrying_ = false;
      use_free_slots();
    },
  };
}

void parameter_shard::on_exit() {
  for (auto& x : waiting_)
    x.answer.deliver(make_error(errc::link_lost, "ps/" + std::to_string(options_.index) + " ends"));
  waiting_.clear();
  listeners_.clear();
  shards_.clear();
  options_.coordinator = nullptr;
}

// -- decisions ----------------------------------------------------------------------------------

caf::result<proto::Pushed> parameter_shard::on_push(const proto::Push& x, const payload& gradient) {
  const auto expected = x.samples() > 0 ? options_.where.size() * sizeof(float) : 0;
  if (gradient.size() != expected)
    return make_error(
      errc::malformed,
      "worker/" + std::to_string(x.id().worker()) + " pushed " + std::to_string(gradient.size())
        + " bytes to ps/" + std::to_string(options_.index) + ", which holds parameters "
        + std::to_string(options_.where.begin) + " to " + std::to_string(options_.where.end)
        + " and expects " + std::to_string(expected));
  if (auto answer = decided(x))
    return std::move(*answer);
  return context_->job.protocol() == proto::SYNC_PS ? aggregate(x, gradient)
                                                    : apply_or_wait(x, gradient);
}

caf::result<proto::Pushed> parameter_shard::on_admit(const proto::Admit& x) {
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
  // What is admitted will be applied, so it counts, whether it has arrived or not.
  answer.set_staleness(admitted_ - std::min(admitted_, x.base_version()));
  const auto& bounds = context_->job.async_ps();
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
  spdlog::debug("ps/{}: worker/{} is fenced off", options_.index, x.worker());
  journal_.fence(x.worker(), x.incarnation());
  proto::Fenced result;
  *result.mutable_decided() = journal_.decided(x.worker(), x.incarnation());
  // What was admitted and has not come will not come.
  auto last = last_admitted_.find({x.worker(), x.incarnation()});
  if (last != last_admitted_.end()) {
    if (last->second > result.decided().sequence())
      --admitted_;
    last_admitted_.erase(last);
  }
  return result;
}

caf::result<proto::Report> parameter_shard::on_report(const proto::ReportRequest&) {
  proto::Report result;
  for (auto& x : journal_.decided())
    *result.add_decided() = x;
  result.set_duplicates(journal_.duplicates());
  result.set_samples(updater_.samples() - samples_before_);
  result.set_staleness_sum(staleness_sum_);
  result.set_version(versions_->version() - first_version_);
  result.set_captured(checkpoints_.newest());
  result.set_captured_to_evaluate(evaluations_.newest());
  return result;
}

std::optional<proto::Pushed> parameter_shard::decided(const proto::Push& x) {
  if (auto answer = journal_.find(x.id()))
    return answer;
  if (!journal_.fenced(x.id()))
    return std::nullopt;
  proto::Pushed answer;
  answer.set_outcome(proto::LOST);
  answer.set_version(versions_->version());
  journal_.record(x.id(), answer, x.lease(), x.batch());
  return answer;
}

std::uint64_t parameter_shard::staleness(std::uint64_t base_version) const noexcept {
  const auto now = versions_->version();
  return now > base_version ? now - base_version : 0;
}

// -- ASYNC_PS -----------------------------------------------------------------------------------

caf::result<proto::Pushed> parameter_shard::apply_or_wait(const proto::Push& x,
                                                          const payload& gradient) {
  if (waiting_.empty() && find_slot())
    return apply(x, gradient);
  auto answer = make_response_promise<proto::Pushed>();
  waiting_.push_back({x, gradient, answer});
  retry_soon();
  return answer;
}

proto::Pushed parameter_shard::apply(const proto::Push& x, const payload& gradient) {
  proto::Pushed answer;
  answer.set_outcome(proto::APPLIED);
  answer.set_staleness(staleness(x.base_version()));
  staleness_sum_ += answer.staleness();
  make_version(gradient.as_floats(), x.samples(), x.gradient_norm());
  answer.set_version(versions_->version());
  journal_.record(x.id(), answer, x.lease(), x.batch());
  capture_if_due();
  return answer;
}

// -- SYNC_PS ------------------------------------------------------------------------------------

caf::result<proto::Pushed> parameter_shard::aggregate(const proto::Push& x,
                                                      const payload& gradient) {
  const auto rank = rank_of(x.id().worker());
  if (!rank || x.step() != versions_->version())
    return make_error(errc::malformed,
                      "worker/" + std::to_string(x.id().worker()) + " pushed step "
                        + std::to_string(x.step()) + ", but ps/" + std::to_string(options_.index)
                        + " is at step " + std::to_string(versions_->version()));
  if (step_.add(*rank, x.samples(), gradient))
    step_parts_.push_back(x);
  options_.board->arrived({job_kind::worker, x.id().worker()});
  proto::Pushed answer;
  answer.set_outcome(proto::ACCEPTED);
  answer.set_version(versions_->version());
  if (step_.complete()) {
    share_norm();
    use_free_slots();
  }
  return answer;
}

void parameter_shard::advance() {
  proto::Advanced news;
  news.set_view(options_.view.number);
  news.set_shard(options_.index);
  news.set_step(versions_->version());
  news.set_samples(step_.samples());
  const auto step = versions_->version();
  double norm = 0;
  if (norm_shared_) {
    norm = std::sqrt(norms_.sum(step)) / static_cast<double>(step_.samples());
    news.set_gradient_norm(norm);
  }
  make_version(step_.sum(), step_.samples(), norm);
  norms_.forget(step);
  norm_shared_ = false;
  news.set_version(versions_->version());
  proto::Pushed answer;
  answer.set_outcome(proto::APPLIED);
  answer.set_version(versions_->version());
  for (auto& part : step_parts_)
    journal_.record(part.id(), answer, part.lease(), part.batch());
  step_.clear();
  step_parts_.clear();
  for (auto& listener : listeners_)
    send(listener, news);
  capture_if_due();
}

// The norm of the step's gradient takes all shards; an own part that is not finite shows at once.
void parameter_shard::share_norm() {
  if (context_->rule.clip_norm == 0 || norm_shared_ || step_.samples() == 0)
    return;
  proto::PartialNorm part;
  part.set_view(options_.view.number);
  part.set_step(versions_->version());
  part.set_shard(options_.index);
  part.set_squares(squared_norm(context_->parameters(), options_.where, step_.sum()));
  if (!std::isfinite(part.squares())) {
    fail("the gradient of step " + std::to_string(part.step() + 1)
           + " is not finite, first that of "
           + first_not_finite(context_->parameters(), options_.where, step_.sum()),
         true);
    return;
  }
  norm_shared_ = true;
  norms_.add(part.step(), part.step(), options_.index, part.squares());
  for (std::size_t i = 0; i < shards_.size(); ++i)
    if (i != options_.index)
      tell_norm(i, part);
}

void parameter_shard::tell_norm(std::size_t shard, const proto::PartialNorm& part) {
  const task_name other{job_kind::ps, static_cast<std::uint32_t>(shard)};
  if (!norms_.has(part.step(), shard))
    options_.board->await(other);
  ask(
    this, shards_[shard], options_.requests, [](const proto::Ack&) {},
    [this, other](const caf::error& error) {
      fail("cannot tell " + to_string(other) + " of the gradient's norm: " + explain(error));
    },
    part);
}

caf::result<proto::Ack> parameter_shard::on_partial_norm(const proto::PartialNorm& x) {
  if (!norms_.add(versions_->version(), x.step(), x.shard(), x.squares()))
    return make_error(errc::malformed,
                      "ps/" + std::to_string(x.shard()) + " tells the norm of step "
                        + std::to_string(x.step()) + ", but ps/" + std::to_string(options_.index)
                        + " is at step " + std::to_string(versions_->version()));
  if (norms_.has(versions_->version(), x.shard()))
    options_.board->arrived({job_kind::ps, x.shard()});
  if (step_ready())
    use_free_slots();
  return proto::Ack{};
}

/// All is there for the next update.
bool parameter_shard::step_ready() {
  if (workers_.empty() || !step_.complete())
    return false;
  if (context_->rule.clip_norm == 0 || step_.samples() == 0)
    return true;
  return norm_shared_ && norms_.complete(versions_->version());
}

void parameter_shard::fail(const std::string& reason, bool not_finite) {
  proto::Failure failure;
  *failure.mutable_task() = to_proto(task_name{job_kind::ps, options_.index});
  failure.set_reason("ps/" + std::to_string(options_.index) + ": " + reason);
  failure.set_not_finite(not_finite);
  if (options_.coordinator)
    send(options_.coordinator, std::move(failure));
}

std::optional<std::size_t> parameter_shard::rank_of(std::uint32_t worker) const {
  for (std::size_t i = 0; i < workers_.size(); ++i)
    if (workers_[i].task.index == worker)
      return i;
  return std::nullopt;
}

// -- versions -----------------------------------------------------------------------------------

// The slot was found by versions_->begin(). A step without samples leaves the weights as they are.
void parameter_shard::make_version(std::span<const float> gradient, std::uint64_t samples,
                                   double norm) {
  options_.board->enter(proto::TaskStatus::UPDATING, clock().now());
  const auto old = versions_->published();
  const auto updated = versions_->next();
  if (samples > 0)
    updater_.apply(old, gradient, samples, updated, clip_factor(context_->rule.clip_norm, norm));
  else
    std::ranges::copy(old, updated.begin());
  versions_->publish(versions_->version() + 1);
  options_.board->count_step(clock().now());
  await_gradients();
}

void parameter_shard::await_gradients() {
  if (context_->job.protocol() == proto::SYNC_PS)
    for (auto& x : workers_)
      options_.board->await(x.task);
  options_.board->enter(proto::TaskStatus::WAITING_FOR_GRADIENTS, clock().now());
}

bool parameter_shard::find_slot() {
  const bool found = versions_->begin();
  if (!found)
    options_.board->enter(proto::TaskStatus::WAITING_FOR_READERS, clock().now());
  return found;
}

void parameter_shard::use_free_slots() {
  while (!waiting_.empty()) {
    auto& x = waiting_.front();
    // It may have been repeated, or its worker fenced off, while it waited.
    auto answer = decided(x.header);
    if (!answer && !find_slot())
      break;
    x.answer.deliver(answer ? std::move(*answer) : apply(x.header, x.gradient));
    waiting_.pop_front();
  }
  const bool ready = step_ready();
  if (ready && find_slot())
    advance();
  else if (ready || !waiting_.empty())
    retry_soon();
  else if (norm_shared_)
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

// -- checkpoints --------------------------------------------------------------------------------

// The weights are held, not copied; the optimizer's state is changed in place, and must be.
void parameter_shard::capture_if_due() {
  if (!options_.coordinator)
    return;
  const auto version = versions_->version();
  if (evaluations_.due(version))
    capture(evaluations_, true, {versions_->newest().data});
  if (!checkpoints_.due(version))
    return;
  std::vector<payload> slots{versions_->newest().data};
  for (std::size_t i = 0; i < context_->rule.slots(); ++i) {
    slots.push_back(payload::floats(options_.where.size()));
    std::ranges::copy(updater_.state(i), slots.back().as_mutable_floats().begin());
  }
  capture(checkpoints_, false, slots);
}

void parameter_shard::capture(checkpoint_schedule& schedule, bool to_evaluate,
                              const std::vector<payload>& slots) {
  proto::CheckpointPart header;
  header.set_view(options_.view.number);
  header.set_version(versions_->version());
  header.set_part(options_.index);
  header.set_to_evaluate(to_evaluate);
  if (!to_evaluate)
    for (auto& x : journal_.decided())
      *header.add_mark() = x;
  schedule.began(versions_->version());
  send_capture(this, options_.coordinator, options_.requests, std::move(header), slots,
               [&schedule] { schedule.ended(); });
}

caf::result<proto::Ack> parameter_shard::on_restore(const proto::Restore& x,
                                                    const payload& values) {
  if (x.slot() > context_->rule.slots() || values.size() != options_.where.size() * sizeof(float))
    return make_error(errc::malformed,
                      "ps/" + std::to_string(options_.index) + " was given "
                        + std::to_string(values.size()) + " bytes of slot "
                        + std::to_string(x.slot()) + " of a checkpoint, which it cannot use");
  if (versions_->version() > x.version())
    return proto::Ack{}; // A repetition that came late: training has begun.
  if (x.slot() > 0) {
    updater_.restore(x.slot() - 1, values.as_floats());
  } else if (!std::exchange(restored_, true)) {
    // Nobody reads before training begins, so there is a slot.
    versions_->begin();
    std::ranges::copy(values.as_floats(), versions_->next().begin());
    versions_->publish(x.version());
  }
  updater_.restore(x.samples(), x.version());
  samples_before_ = x.samples();
  first_version_ = admitted_ = x.version();
  return proto::Ack{};
}

} // namespace troupe
