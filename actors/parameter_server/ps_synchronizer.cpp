#include "actors/parameter_server/ps_synchronizer.hpp"

#include "actors/touched_rows.hpp"
#include "messages/problems.hpp"
#include "messages/selection.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <spdlog/spdlog.h>

namespace troupe {

namespace {

/// Only with `bounded`: a worker that gets no batch within this time counts as idle, and the other
/// workers stop waiting for it. Normally, a worker gets new data to train in less time.
constexpr std::chrono::milliseconds idle_patience{10};

} // namespace

ps_synchronizer::ps_synchronizer(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                                 ps_synchronizer_options options, worker_actor worker)
  : super(cfg), context_(std::move(context)), updates_rows_(updates_rows(*context_)),
    options_(std::move(options)), worker_(std::move(worker)), parts_(options_.shards.size()),
    piecewise_(parts_.size()) {
  const auto shards = context_->shards(parts_.size());
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].where = shards[i];
    piecewise_[i].pieces = range_pieces::cut(shards[i]);
  }
}

ps_synchronizer::behavior_type ps_synchronizer::make_behavior() {
  return {
    [this](const acquire& x) { on_acquire(x); },
    [this](const contribute& x) { on_contribute(x); },
    [this](const commit& x) { on_commit(x); },
    [this](const abandon& x) { on_abandon(x); },
    in_view(this, &ps_synchronizer::on_advanced),
    in_view(this, &ps_synchronizer::on_new_weights),
    [this](tick) { on_tick(); },
    [this](const idle_check& x) { on_idle_check(x); },
    [this](const shared_weights& x) {
      parts_.at(x.shard).live = std::make_shared<live_writer>(*context_, x.weights);
    },
  };
}

// -- acquire -------------------------------------------------------------------------------------

void ps_synchronizer::on_acquire(const acquire& x) {
  if (done_) {
    later_ = later_step{x, false, {}, {}, std::nullopt, false};
    serve_later();
    return;
  }
  begin_gradient(x);
  if (options_.writes) {
    read_live();
    return;
  }
  pulls_due_ = true;
  begin_pulls();
}

void ps_synchronizer::begin_gradient(const acquire& x) {
  sequence_ = sequence_.next();
  attributes_ = x;
  admission_ = admission::not_needed;
  samples_ = samples_of_step_ = staleness_ = contributed_ = 0;
  done_.reset();
  gradient_norm_.reset();
  outcome_ = proto::OUTCOME_UNSET;
  ranges_.assign(parts_.size(), {});
  early_.reset();
  pulls_open_ = parts_.size();
  from_early_ = false;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    auto& part = parts_[i];
    part = {.where = part.where,
            .kept = std::move(part.kept),
            .told = part.told,
            .missing = part.where.size(),
            .slowest = options_.pull_ahead > 0 ? part.slowest : 0,
            .live = std::move(part.live),
            .kept_version = part.kept_version,
            .pulled_next = part.pulled_next,
            .next = std::move(part.next)};
    choose_rows(i, x.rows);
    choose_pieces(i);
  }
}

// -- contribute: pushes the gradient to the shards ----------------------------------------------

void ps_synchronizer::on_contribute(const contribute& x) {
  if (is_later(x.step))
    later_->contributions.push_back(x);
  if (x.step.value != sequence_.value)
    return;
  gradient_ = x.gradient;
  samples_ = x.samples;
  if (admission_ == admission::not_needed && options_.admission)
    ask_admission();
  contributed_ += x.end - x.begin;
  const bool last = contributed_ == context_->parameters().size();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    auto& part = parts_[i];
    const auto arrived = intersect(part.where, range{x.begin, x.end}).size();
    if (arrived > part.missing) {
      fail("contribute to", i, make_error(errc::malformed, "a range was contributed twice"));
      return;
    }
    part.missing -= arrived;
    if (piecewise_[i].pushes && samples_ > 0)
      push_pieces(i, {x.begin, x.end});
    else if (!last) // After the last range, the commit follows and carries the remaining parts.
      push_if_complete(i);
  }
}

bool ps_synchronizer::waits_for_push(std::size_t shard) const {
  const auto& part = parts_[shard];
  return part.missing == 0 && !part.pushed && !part.decided && samples_ > 0
    && (!done_ || done_->finite()) && !options_.writes && !piecewise_[shard].pushes;
}

void ps_synchronizer::push_if_complete(std::size_t shard) {
  if (waits_for_push(shard))
    push(shard);
}

payload ps_synchronizer::gradient_for(std::size_t shard) const {
  const auto& x = parts_[shard];
  auto all = gradient_.slice_floats(x.where.begin, x.where.size());
  if (!x.rows || !is_apart(shard))
    return all;
  auto result = payload::floats(selected(*x.rows, x.where.begin, x.where.end));
  if (gradient_.is_rounded())
    result.mark_rounded();
  gather(*x.rows, x.where.begin, all.as_floats(), result.as_mutable_floats());
  return result;
}

// Pushes a shard's part of the gradient. If the push is not answered, it is not repeated here: the
// shard's answer to the commit asks for the part again (NOT_STAGED).
void ps_synchronizer::push(std::size_t shard) {
  auto& part = parts_[shard];
  part.pushed = part.on_its_way = true;
  report_exchange();
  proto::Push header;
  header.set_view(options_.view);
  *header.mutable_id() = gradient_id();
  header.set_samples(samples_);
  const auto data = gradient_for(shard);
  if (part.rows)
    *header.mutable_rows() = *part.rows;
  options_.board->count_bytes_sent(data.size());
  try_ask(
    this, options_.shards[shard], options_.requests.for_bytes(data.size()),
    [this, shard, sequence = sequence_](const proto::Pushed&) {
      if (sequence != sequence_)
        return;
      parts_[shard].on_its_way = false;
      report_exchange();
    },
    [this, shard, sequence = sequence_](const caf::error& error) {
      if (sequence != sequence_)
        return;
      parts_[shard].on_its_way = false;
      report_exchange();
      if (error != caf::sec::request_timeout)
        fail("push a gradient to", shard, error);
    },
    header, data);
}

// -- commit -------------------------------------------------------------------------------------

void ps_synchronizer::on_commit(const commit& x) {
  if (is_later(x.step))
    later_->done = x;
  if (x.step.value != sequence_.value)
    return;
  done_ = x;
  complete_header();
  if (context_->rule.clip_norm > 0 && !options_.in_step)
    gradient_norm_ = header_.gradient_norm();
  write_live();
  commit_parts();
  for (std::size_t i = 0; i < parts_.size(); ++i)
    push_if_complete(i);
  finish_if_decided();
}

void ps_synchronizer::commit_parts() {
  if (!done_ || admission_ == admission::asked || admission_ == admission::refused)
    return;
  const std::size_t count = options_.first_decides ? 1 : parts_.size();
  for (std::size_t i = 0; i < count; ++i)
    if (!parts_[i].committed)
      commit_part(i);
  next_version_ = steps_.value + 1;
}

void ps_synchronizer::complete_header() {
  header_.Clear();
  header_.set_view(options_.view);
  *header_.mutable_id() = gradient_id();
  header_.set_samples(samples_);
  header_.set_lease(attributes_.lease);
  header_.set_batch(attributes_.batch);
  header_.set_step(options_.bounded ? clock_ : steps_.value);
  // If the worker pauses, its next step may begin much later, so the shard must not send weights
  // for that step now.
  header_.set_pauses(!options_.in_step && !options_.bounded && done_->pauses);
  if (done_->loss_scale)
    *header_.mutable_loss_scale() = to_proto(*done_->loss_scale);
  if (!done_->finite()) {
    header_.set_quarantine(true);
    return;
  }
  if (samples_ > 0) {
    header_.set_gradient_norm(std::sqrt(done_->squared_norm) / static_cast<double>(samples_));
    header_.set_loss(done_->loss_sum / static_cast<double>(samples_));
  }
  if (options_.policy)
    options_.policy->complete(header_, gradient_.as_floats(), pacing_);
}

proto::Commit ps_synchronizer::commit_header(std::size_t shard) const {
  auto result = header_;
  result.set_base_version(parts_[shard].base_version);
  // `again` allows the shard to ask for the part again. While the part is in transit, the shard
  // must wait for it instead.
  result.set_again(parts_[shard].attempts > 0 && !parts_[shard].on_its_way);
  return result;
}

void ps_synchronizer::commit_part(std::size_t shard) {
  auto& part = parts_[shard];
  part.committed = true;
  report_exchange();
  options_.board->await(name_of(shard));
  const auto header = commit_header(shard);
  ++part.attempts;
  const auto how = options_.requests.for_bytes(part.where.size() * sizeof(float));
  const auto decided = [this, shard, sequence = sequence_](const proto::Pushed& x) {
    on_decided(shard, sequence, x);
  };
  const auto lost = [this, shard, sequence = sequence_](const caf::error& error) {
    on_no_answer(shard, sequence, error);
  };
  if (waits_for_push(shard) && !part.rows) {
    part.pushed = true;
    const auto data = gradient_for(shard);
    options_.board->count_bytes_sent(data.size());
    try_ask(this, options_.shards[shard], how, decided, lost, header, data);
  } else {
    push_if_complete(shard);
    try_ask(this, options_.shards[shard], how, decided, lost, header);
  }
  if (pulls_next(shard) && !part.pulled_next && !sends_weights(shard))
    pull_next(shard);
}

void ps_synchronizer::on_no_answer(std::size_t shard, gradient_sequence sequence,
                                   const caf::error& error) {
  if (sequence != sequence_ || parts_[shard].decided)
    return;
  if (error == caf::sec::request_timeout && parts_[shard].attempts < options_.requests.attempts)
    commit_part(shard);
  else
    fail("commit a gradient at", shard, error);
}

void ps_synchronizer::on_decided(std::size_t shard, gradient_sequence sequence,
                                 const proto::Pushed& x) {
  if (sequence != sequence_ || parts_[shard].decided)
    return;
  if (x.has_pacing())
    pacing_ = x.pacing();
  parts_[shard].attempts = 1;
  if (x.outcome() == proto::NOT_STAGED) {
    if (!parts_[shard].on_its_way)
      push(shard);
    commit_part(shard);
  } else if (x.outcome() == proto::ACCEPTED) {
    accepted(shard);
  } else {
    if (!options_.in_step) {
      parts_[shard].told = std::max(parts_[shard].told, x.version());
      // Weights that the shard sends for the next step arrive before this answer. If none have
      // arrived, the worker pulls them.
      if (pulls_next(shard) && !parts_[shard].pulled_next && !has_new_weights(shard))
        pull_next(shard);
    }
    decide(shard, x.outcome(), x.staleness());
    const bool used = x.outcome() == proto::APPLIED || x.outcome() == proto::QUARANTINED;
    for (std::size_t i = 1; options_.first_decides && shard == 0 && i < parts_.size(); ++i)
      if (!used)
        decide(i, x.outcome(), x.staleness());
      else if (!parts_[i].committed)
        commit_part(i);
  }
  finish_if_decided();
}

// The shard has the gradient. It announces the update when all workers' gradients have arrived.
// This announcement may be lost with a connection, so a timer checks for it.
void ps_synchronizer::accepted(std::size_t shard) {
  parts_[shard].taken = true;
  remind();
  if (!options_.first_decides || shard != 0)
    return;
  for (std::size_t i = 1; i < parts_.size(); ++i)
    if (!parts_[i].committed)
      commit_part(i);
  if (early_)
    on_advanced(*early_);
}

void ps_synchronizer::remind() {
  if (!std::exchange(reminded_, true))
    delayed_send(this, options_.requests.timeout, tick{});
}

void ps_synchronizer::on_advanced(const proto::Advanced& x) {
  if (x.shard() >= parts_.size())
    return;
  auto& part = parts_[x.shard()];
  if (options_.bounded) {
    part.slowest = std::max(part.slowest, x.step());
    if (part.waits)
      pull(x.shard());
    pull_early_again(x.shard());
    return;
  }
  if (!options_.in_step)
    return;
  part.told = std::max(part.told, x.version());
  if (options_.first_decides && pulls_open_ > 0)
    hand_on_if_of_one_version();
  if (x.step() != steps_.value || !part.committed || part.decided)
    return;
  // The worker does not know yet whether shard 0 made this update with this worker's gradient, so
  // the announcement is kept until shard 0's decision arrives.
  if (options_.first_decides && x.shard() == 0 && !part.taken) {
    early_ = x;
    return;
  }
  samples_of_step_ = x.samples();
  if (const auto problem = problem_of(x); !problem.empty())
    spdlog::warn("worker/{} ignores what ps/{} sent: {}", options_.worker, x.shard(), problem);
  else if (x.has_gradient_norm())
    gradient_norm_ = x.gradient_norm();
  decide(x.shard(), done_->finite() ? proto::APPLIED : proto::QUARANTINED, 0);
  finish_if_decided();
}

void ps_synchronizer::on_tick() {
  reminded_ = false;
  // Repeats only pulls that came too early. Other pulls are still in transit.
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    pull_early_again(i);
    if (parts_[i].waits) {
      pull(i);
    } else if (done_ && parts_[i].taken && !parts_[i].decided) {
      parts_[i].attempts = 0;
      commit_part(i);
    }
  }
  // Pulls again, because the announcement of a newer version may have been lost.
  if (options_.first_decides && pulls_open_ > 0)
    hand_on_if_of_one_version(true);
}

void ps_synchronizer::on_abandon(const abandon& x) {
  if (is_later(x.step))
    later_->abandoned = true;
  if (x.step.value == sequence_.value)
    answer(proto::REQUEUED);
}

// Asks shard 0 whether the gradient is too stale. Shard 0 decides for all shards. Otherwise shards
// could decide differently, because gradients reach them in different order.
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
    commit_parts();
  }
  finish_if_decided();
}

void ps_synchronizer::decide(std::size_t shard, proto::Outcome outcome, std::uint64_t staleness) {
  parts_[shard].decided = true;
  report_exchange();
  options_.board->arrived(name_of(shard));
  // LOST means that the coordinator considers this worker lost. It overrides the answers of other
  // shards.
  if (outcome_ != proto::LOST)
    outcome_ = outcome;
  staleness_ = std::max(staleness_, staleness);
}

void ps_synchronizer::finish_if_decided() {
  if (done_ && std::ranges::all_of(parts_, &part::decided))
    answer(outcome_);
}

void ps_synchronizer::answer(proto::Outcome outcome) {
  committed result;
  result.step = {sequence_.value};
  result.outcome = outcome;
  result.staleness = staleness_;
  result.samples = options_.in_step ? samples_of_step_ : samples_;
  result.gradient_norm = gradient_norm_;
  result.limited = header_.scale() > 0 && header_.scale() < 1;
  if (outcome == proto::APPLIED || outcome == proto::QUARANTINED) {
    ++clock_;
    if (options_.bounded && done_->pauses)
      delayed_send(this, idle_patience, idle_check{sequence_});
  }
  if (outcome == proto::REJECTED_STALE || (done_ && done_->pauses)) {
    ahead_.clear();
    forget_new_weights();
  }
  gradient_ = {};
  done_.reset();
  report_exchange();
  send(worker_, result);
  begin_later();
}

// Ignores pulls for the current step, because the worker waits for these weights and computes
// nothing meanwhile.
bool ps_synchronizer::exchanging() const {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const auto& x = parts_[i];
    if (x.on_its_way || ((x.committed || piecewise_[i].sent) && !x.decided))
      return true;
  }
  return std::ranges::any_of(ahead_, [](auto& weights) {
    return std::ranges::any_of(weights.parts, [](auto& x) { return !x.weights && !x.waits; });
  });
}

void ps_synchronizer::report_exchange() {
  options_.board->exchange(exchanging(), clock().now());
}

task_name ps_synchronizer::name_of(std::size_t shard) {
  return {job_kind::ps, static_cast<std::uint32_t>(shard)};
}

proto::GradientId ps_synchronizer::gradient_id() const {
  proto::GradientId result;
  result.set_worker(options_.worker);
  result.set_incarnation(options_.incarnation);
  result.set_sequence(sequence_.value);
  return result;
}

void ps_synchronizer::fail(const std::string& what, std::size_t shard, const caf::error& error) {
  send(worker_,
       broken{"worker/" + std::to_string(options_.worker) + " cannot " + what + " ps/"
              + std::to_string(shard) + ": " + explain(error)});
}

} // namespace troupe
