#include "actors/parameter_server/ps_synchronizer.hpp"

#include "kernels/gradient_norm.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

ps_synchronizer::ps_synchronizer(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                                 ps_synchronizer_options options, worker_actor worker)
  : super(cfg), context_(std::move(context)), options_(std::move(options)),
    worker_(std::move(worker)), parts_(options_.shards.size()) {
  for (std::size_t i = 0; i < parts_.size(); ++i)
    parts_[i].where = context_->shard(i, parts_.size());
}

ps_synchronizer::behavior_type ps_synchronizer::make_behavior() {
  return {
    [this](const acquire& x) { on_acquire(x); },  [this](const contribute& x) { on_contribute(x); },
    [this](const commit& x) { on_commit(x); },    [this](const abandon& x) { on_abandon(x); },
    in_view(this, &ps_synchronizer::on_advanced), [this](tick) { on_tick(); },
  };
}

// -- acquire: pull ------------------------------------------------------------------------------

void ps_synchronizer::on_acquire(const acquire& x) {
  ++sequence_;
  attributes_ = x;
  admission_ = admission::not_needed;
  samples_ = samples_of_step_ = staleness_ = 0;
  sum_of_squares_ = 0;
  gradient_norm_.reset();
  outcome_ = proto::OUTCOME_UNSET;
  committed_ = false;
  ranges_.assign(parts_.size(), {});
  pulls_open_ = parts_.size();
  proto::Pull pull;
  pull.set_view(options_.view);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    auto& part = parts_[i];
    part = {part.where, 0, part.where.size(), false, false};
    options_.board->await(name_of(i));
    ask(
      this, options_.readers[i], options_.requests,
      [this, i](const proto::Weights& header, const payload& data) { on_weights(i, header, data); },
      [this, i](const caf::error& error) { fail("pull weights from", i, error); }, pull);
  }
}

void ps_synchronizer::on_weights(std::size_t shard, const proto::Weights& header,
                                 const payload& data) {
  auto& part = parts_[shard];
  if (header.begin() != part.where.begin || header.count() != part.where.size()
      || data.size() != part.where.size() * sizeof(float)) {
    fail("use weights of", shard,
         make_error(errc::malformed,
                    "it serves parameters " + std::to_string(header.begin()) + " to "
                      + std::to_string(header.begin() + header.count())));
    return;
  }
  options_.board->arrived(name_of(shard));
  part.base_version = header.version();
  // In step, all shards are at the same version, and it is the number of the step.
  steps_ = header.version();
  ranges_[shard] = {header.begin(), header.version(), data};
  if (--pulls_open_ == 0)
    send(worker_, acquired{sequence_, std::move(ranges_)});
}

// -- contribute, commit: push -------------------------------------------------------------------

void ps_synchronizer::on_contribute(const contribute& x) {
  if (x.step != sequence_)
    return;
  gradient_ = x.gradient;
  samples_ = x.samples;
  sum_of_squares_ += x.sum_of_squares;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const auto arrived = intersect(parts_[i].where, range{x.begin, x.end}).size();
    if (arrived > parts_[i].missing) {
      fail("contribute to", i, make_error(errc::malformed, "a range was contributed twice"));
      return;
    }
    parts_[i].missing -= arrived;
  }
  if (admission_ == admission::not_needed && context_->job.async_ps().has_max_staleness()
      && !in_step())
    ask_admission();
  push_ready_parts();
}

void ps_synchronizer::on_commit(const commit& x) {
  if (x.step != sequence_)
    return;
  committed_ = true;
  if (!std::isfinite(sum_of_squares_)) {
    const auto& parameters = context_->parameters();
    send(worker_,
         broken{"the gradient is not finite, first that of "
                  + first_not_finite(parameters, {0, parameters.size()}, gradient_.as_floats()),
                true});
    return;
  }
  push_ready_parts();
  finish_if_decided();
}

void ps_synchronizer::on_abandon(const abandon& x) {
  if (x.step == sequence_)
    answer(proto::REQUEUED);
}

// The staleness of a gradient is taken at shard 0; others may differ by what is on its way.
void ps_synchronizer::ask_admission() {
  admission_ = admission::asked;
  options_.board->await(name_of(0));
  proto::Admit admit;
  admit.set_view(options_.view);
  *admit.mutable_id() = gradient_id();
  admit.set_base_version(parts_[0].base_version);
  ask(
    this, options_.shards[0], options_.requests,
    [this](const proto::Pushed& x) { on_admission(x); },
    [this](const caf::error& error) { fail("ask for admission at", 0, error); }, admit);
}

void ps_synchronizer::on_admission(const proto::Pushed& x) {
  options_.board->arrived(name_of(0));
  if (x.outcome() != proto::ACCEPTED) {
    admission_ = admission::refused;
    for (std::size_t i = 0; i < parts_.size(); ++i)
      decide(i, x.outcome(), x.staleness());
  } else {
    admission_ = admission::granted;
    push_ready_parts();
  }
  finish_if_decided();
}

// Of the mean over the samples.
double ps_synchronizer::own_norm() const {
  return samples_ > 0 ? std::sqrt(sum_of_squares_) / static_cast<double>(samples_) : 0;
}

void ps_synchronizer::push_ready_parts() {
  if (clips() && !committed_)
    return;
  if (admission_ == admission::asked || admission_ == admission::refused)
    return;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    if (parts_[i].missing == 0 && !parts_[i].sent)
      push(i);
}

void ps_synchronizer::push(std::size_t shard) {
  auto& part = parts_[shard];
  part.sent = true;
  options_.board->await(name_of(shard));
  proto::Push header;
  header.set_view(options_.view);
  *header.mutable_id() = gradient_id();
  header.set_samples(samples_);
  header.set_base_version(part.base_version);
  header.set_lease(attributes_.lease);
  header.set_batch(attributes_.batch);
  header.set_step(steps_);
  if (clips()) {
    gradient_norm_ = own_norm();
    header.set_gradient_norm(*gradient_norm_);
  }
  payload data;
  if (samples_ > 0)
    data = gradient_.slice_floats(part.where.begin, part.where.size());
  ask(
    this, options_.shards[shard], options_.requests,
    [this, shard, sequence = sequence_](const proto::Pushed& x) { on_pushed(shard, sequence, x); },
    [this, shard](const caf::error& error) { fail("push a gradient to", shard, error); }, header,
    data);
}

void ps_synchronizer::on_pushed(std::size_t shard, std::uint64_t sequence, const proto::Pushed& x) {
  if (sequence != sequence_)
    return;
  if (x.outcome() != proto::ACCEPTED) {
    decide(shard, x.outcome(), x.staleness());
  } else if (!reminded_) {
    // The update waits for other workers; its message may be lost with a connection, so look again.
    reminded_ = true;
    delayed_send(this, options_.requests.timeout, tick{});
  }
  finish_if_decided();
}

void ps_synchronizer::on_advanced(const proto::Advanced& x) {
  if (!in_step() || x.step() != steps_ || x.shard() >= parts_.size() || !parts_[x.shard()].sent)
    return;
  samples_of_step_ = x.samples();
  if (x.has_gradient_norm())
    gradient_norm_ = x.gradient_norm();
  decide(x.shard(), proto::APPLIED, 0);
  finish_if_decided();
}

void ps_synchronizer::on_tick() {
  reminded_ = false;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    if (in_step() && parts_[i].sent && !parts_[i].decided)
      push(i);
}

void ps_synchronizer::decide(std::size_t shard, proto::Outcome outcome, std::uint64_t staleness) {
  parts_[shard].decided = true;
  options_.board->arrived(name_of(shard));
  // A part that is lost tells that this worker was given up, whatever other shards answered before.
  if (outcome_ != proto::LOST)
    outcome_ = outcome;
  staleness_ = std::max(staleness_, staleness);
}

void ps_synchronizer::finish_if_decided() {
  if (committed_ && std::ranges::all_of(parts_, &part::decided))
    answer(outcome_);
}

void ps_synchronizer::answer(proto::Outcome outcome) {
  committed result;
  result.step = sequence_;
  result.outcome = outcome;
  result.staleness = staleness_;
  result.samples = in_step() ? samples_of_step_ : samples_;
  result.gradient_norm = gradient_norm_;
  gradient_ = {};
  committed_ = false;
  send(worker_, result);
}

task_name ps_synchronizer::name_of(std::size_t shard) {
  return {job_kind::ps, static_cast<std::uint32_t>(shard)};
}

proto::GradientId ps_synchronizer::gradient_id() const {
  proto::GradientId result;
  result.set_worker(options_.worker);
  result.set_incarnation(options_.incarnation);
  result.set_sequence(sequence_);
  return result;
}

void ps_synchronizer::fail(const std::string& what, std::size_t shard, const caf::error& error) {
  send(worker_,
       broken{"worker/" + std::to_string(options_.worker) + " cannot " + what + " ps/"
              + std::to_string(shard) + ": " + explain(error)});
}

} // namespace troupe
