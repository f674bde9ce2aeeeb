#include "actors/protocols/local_sgd/local_sgd_synchronizer.hpp"
#include "actors/model/replica_state.hpp"

#include "kernels/optimizers/gradient_norm.hpp"
#include "messages/problems.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

std::vector<std::size_t> local_sgd_sizes(const job_context& context, std::size_t workers) {
  std::vector<std::size_t> result;
  for (int i = 0; i < 2; ++i) {
    for (auto& bucket : context.buckets())
      result.push_back(bucket.size());
    result.push_back(replica_account::elements(workers));
  }
  return result;
}

local_sgd_synchronizer::local_sgd_synchronizer(caf::actor_config& cfg,
                                               std::shared_ptr<const job_context> context,
                                               local_sgd_options options, worker_actor worker)
  : super(cfg), context_(std::move(context)), options_(std::move(options)),
    worker_(std::move(worker)), workers_(options_.view.of(job_kind::worker).size()),
    replica_(context_), account_(workers_of(options_.view), options_.rank),
    checkpoints_(checkpoint_schedule::of_checkpoints(context_->job)),
    evaluations_(checkpoint_schedule::of_evaluations(context_->job)) {
  if (context_->job.local_sgd().has_outer())
    outer_.emplace(context_);
}

local_sgd_synchronizer::behavior_type local_sgd_synchronizer::make_behavior() {
  return {
    [this](const acquire& x) { on_acquire(x); },
    [this](const contribute& x) { on_contribute(x); },
    [this](const commit& x) { on_commit(x); },
    [this](const abandon& x) { on_abandon(x); },
    in_view(this, &local_sgd_synchronizer::on_segment),
    [this](const reduction& x) { on_reduced(x); },
    [this](const broken& x) { send(worker_, x); },
    in_view(this, &local_sgd_synchronizer::on_pull),
    in_view(this, &local_sgd_synchronizer::on_report),
    in_view(this, &local_sgd_synchronizer::on_restore),
  };
}

void local_sgd_synchronizer::on_exit() {
  options_.ring = nullptr;
  options_.coordinator = nullptr;
  for (auto& answer : std::exchange(pulls_, {}))
    answer.deliver(make_error(errc::failed, "the worker has ended"));
  for (auto& answer : std::exchange(reports_, {}))
    answer.deliver(make_error(errc::failed, "the worker has ended"));
}

// -- a step -------------------------------------------------------------------------------------

void local_sgd_synchronizer::on_acquire(const acquire& x) {
  if (average_) {
    waiting_ = x;
    return;
  }
  attributes_ = x;
  acquired result;
  result.step = {step_};
  for (auto& part : replica_.newest())
    result.ranges.push_back({part.begin, {part.version}, std::move(part.data)});
  send(worker_, std::move(result));
}

void local_sgd_synchronizer::on_contribute(const contribute& x) {
  const auto bucket = replica_.find({x.begin, x.end});
  if (x.step.value != step_ || !bucket)
    return;
  auto gradient = x.gradient.slice_floats(x.begin, x.end - x.begin);
  if (context_->rule.clip_norm > 0)
    unclipped_[*bucket] = std::move(gradient);
  else if (!replica_.stage(*bucket, gradient.as_floats(), x.samples))
    fail_held();
}

// Each worker clips its own gradient.
void local_sgd_synchronizer::stage_clipped(const commit& x, double norm) {
  const auto factor = clip_factor(context_->rule.clip_norm, norm);
  for (auto& [bucket, gradient] : std::exchange(unclipped_, {}))
    if (!replica_.stage(bucket, gradient.as_floats(), x.samples, factor))
      fail_held();
}

void local_sgd_synchronizer::on_commit(const commit& x) {
  if (x.step.value != step_)
    return;
  committed result;
  result.step = x.step;
  result.samples = x.samples;
  if (context_->rule.clip_norm > 0) {
    const auto samples = static_cast<double>(std::max<std::uint64_t>(x.samples, 1));
    result.gradient_norm = std::sqrt(x.squared_norm) / samples;
    stage_clipped(x, *result.gradient_norm);
  }
  if (!replica_.staged())
    return;
  if (x.finite()) {
    result.outcome = proto::APPLIED;
    account_.applied(x.samples);
  } else {
    result.outcome = proto::QUARANTINED;
    account_.quarantined(x.samples);
    leave_out();
  }
  ++step_;
  replica_.publish(step_, x.finite() ? 0 : x.samples);
  apart_ = true;
  ended_ = result;
  if (step_ % context_->job.local_sgd().every() == 0)
    begin_average(kind::due);
  finish_step();
}

// Makes the step without its gradient.
void local_sgd_synchronizer::leave_out() {
  replica_.discard();
  for (std::size_t i = 0; i < replica_.buckets(); ++i)
    if (!replica_.stage(i, {}, 0))
      fail_held();
}

// There are fewer readers (the trainer, a snapshot) than versions, so this would be a bug.
void local_sgd_synchronizer::fail_held() {
  send(worker_, broken{"all versions of a bucket are held by readers"});
}

void local_sgd_synchronizer::on_abandon(const abandon& x) {
  committed result;
  result.step = x.step;
  result.outcome = proto::REQUEUED;
  send(worker_, result);
}

// Captures follow an average: job_validate checks that.
void local_sgd_synchronizer::finish_step() {
  if (!ended_ || average_)
    return;
  if (options_.coordinator && evaluations_.due(step_))
    capture(evaluations_, true);
  if (options_.coordinator && checkpoints_.due(step_))
    capture(checkpoints_, false);
  send(worker_, *std::exchange(ended_, std::nullopt));
}

// -- averages -----------------------------------------------------------------------------------

void local_sgd_synchronizer::begin_average(kind why) {
  if (workers_ == 1 && !outer_) {
    account_.exchanged(account_.own_counts(), account_.own_samples());
    apart_ = false;
    return;
  }
  const auto vectors = replica_.buckets() + 1;
  const auto which = static_cast<std::size_t>(why);
  average_ = average{why, vectors, {}, 0};
  auto counts = account_.own_counts();
  auto own = payload::floats(counts.size());
  std::ranges::copy(counts, own.as_mutable_floats().begin());
  const auto weights = replica_.newest();
  const auto weights_of = [&](std::size_t bucket) {
    return std::ranges::find(weights, replica_.where(bucket).begin, &replica_store::part::begin)
      ->data;
  };
  for (std::size_t i = 0; i < vectors; ++i) {
    ring_contribution mine;
    mine.id.step = averages_;
    mine.id.bucket = static_cast<std::uint32_t>(which * vectors + i);
    mine.samples = account_.own_samples();
    mine.values = i < replica_.buckets() ? weights_of(i) : own;
    send(options_.ring, reduce_bucket{std::move(mine), caf::actor_cast<reduction_listener>(this)});
  }
  ++averages_;
}

void local_sgd_synchronizer::on_segment(const proto::Segment& x, const payload& data) {
  const auto vectors = replica_.buckets() + 1;
  const bool demanded = x.bucket() >= vectors && x.bucket() < 2 * vectors;
  if (demanded && !average_ && x.step() == averages_)
    begin_average(kind::on_demand);
  send(options_.ring, x, data);
}

void local_sgd_synchronizer::on_reduced(const reduction& x) {
  if (!average_)
    return;
  const auto i = x.id.bucket % (replica_.buckets() + 1);
  const auto sum = x.sum.as_floats();
  if (i == replica_.buckets()) {
    average_->counts.assign(sum.begin(), sum.end());
    average_->samples = x.samples;
  } else {
    const auto share = 1 / static_cast<float>(workers_);
    mean_.resize(sum.size());
    std::ranges::transform(sum, mean_.begin(), [share](float y) { return y * share; });
    if (outer_)
      outer_->step(replica_.where(i), mean_);
    if (!replica_.overwrite(i, mean_)) {
      fail_held();
      return;
    }
  }
  if (--average_->missing == 0)
    end_average();
}

// The learning-rate schedule has counted this worker's samples. Now it counts those of the other
// workers.
void local_sgd_synchronizer::end_average() {
  if (!account_.fits(average_->counts, average_->samples)) {
    send(worker_,
         broken{"the workers' counts of samples and of gradients that were left out do "
                "not add up"});
    return;
  }
  const auto others = average_->samples - account_.own_samples();
  account_.exchanged(average_->counts, average_->samples);
  passed_samples_ += average_->samples;
  replica_.publish(step_, others);
  average_.reset();
  averaged_ = step_;
  apart_ = false;
  for (auto& answer : std::exchange(pulls_, {}))
    answer_pull(answer);
  for (auto& answer : std::exchange(reports_, {}))
    answer.deliver(report());
  if (auto x = std::exchange(waiting_, std::nullopt))
    on_acquire(*x);
  finish_step();
}

// -- readers ------------------------------------------------------------------------------------

// A repeated request comes before the next epoch's first lease, because links keep the order. So an
// average on demand finds all workers between two steps.

caf::result<proto::Weights, payload> local_sgd_synchronizer::on_pull(const proto::Pull&) {
  auto answer = make_response_promise<proto::Weights, payload>();
  const bool wanted = apart_ && !(outer_ && !may_be_over());
  if (wanted && !average_)
    begin_average(kind::on_demand);
  if (wanted || average_)
    pulls_.push_back(answer);
  else
    answer_pull(answer);
  return answer;
}

// At the end of an epoch all its samples are trained: this worker's, those of others up to the last
// average, and since then at most one batch per step and worker.
bool local_sgd_synchronizer::may_be_over() const {
  const auto steps = step_ - averaged_;
  const auto least = passed_samples_ + account_.own_samples();
  return least + (workers_ - 1) * context_->batch() * steps
    >= context_->job.epochs() * context_->data.train_records;
}

void local_sgd_synchronizer::answer_pull(
  caf::typed_response_promise<proto::Weights, payload> answer) {
  const auto count = context_->parameters().size();
  proto::Weights header;
  header.set_version(step_);
  header.set_count(count);
  auto weights = replica_.weights({0, count});
  if (outer_ && apart_)
    std::ranges::copy(outer_->weights(), weights.as_mutable_floats().begin());
  answer.deliver(std::move(header), std::move(weights));
}

// Worker 0 may have ended the last average before this worker, so the counts are not here yet. A
// run that ends before its last epoch may have had no average at its end.
caf::result<proto::Report> local_sgd_synchronizer::on_report(const proto::ReportRequest&) {
  if (outer_ && apart_ && !average_ && options_.rank == 0)
    begin_average(kind::on_demand);
  if (!average_ && !(outer_ && apart_))
    return report();
  reports_.push_back(make_response_promise<proto::Report>());
  return reports_.back();
}

proto::Report local_sgd_synchronizer::report() const {
  auto result = account_.report(step_ - first_step_);
  result.set_captured(checkpoints_.newest());
  result.set_captured_to_evaluate(evaluations_.newest());
  return result;
}

// The weights and the outer momentum are equal on all workers, so each sends a part. It sends its
// whole optimizer state, and in addition a part of it for runs with another number of workers.
std::vector<captured> local_sgd_synchronizer::captured_state(bool with_state) const {
  const auto rank = static_cast<std::uint32_t>(options_.rank);
  const auto share = replica_parts(*context_, workers_)[rank];
  auto slots = replica_.capture(share, with_state);
  if (!with_state)
    return slots_of(rank, std::move(slots));
  if (outer_ && !outer_->momentum().empty()) {
    slots.push_back(payload::floats(share.size()));
    std::ranges::copy(outer_->momentum().subspan(share.begin, share.size()),
                      slots.back().as_mutable_floats().begin());
  }
  auto result = slots_of(rank, std::move(slots));
  if (own_states(*context_, workers_) == 0)
    return result;
  const auto own = static_cast<std::uint32_t>(context_->rule.slots());
  const auto first = static_cast<std::uint32_t>(result.size()) + rank * own;
  for (std::uint32_t slot = 0; slot < own; ++slot)
    result.push_back(
      {rank, first + slot, replica_.state(slot, {0, context_->parameters().size()})});
  return result;
}

void local_sgd_synchronizer::capture(checkpoint_schedule& schedule, bool to_evaluate) {
  const auto workers = options_.view.of(job_kind::worker);
  proto::CheckpointPart header;
  header.set_view(view_number());
  header.set_version(step_);
  header.set_to_evaluate(to_evaluate);
  auto* mark = header.add_mark();
  mark->set_worker(options_.worker);
  mark->set_incarnation(workers[options_.rank].incarnation);
  mark->set_applied(step_ - first_step_);
  mark->set_sequence(step_ - first_step_);
  mark->set_lease(attributes_.lease);
  mark->set_batch(attributes_.batch);
  schedule.began(step_);
  send_capture(this, options_.coordinator, options_.requests, std::move(header),
               captured_state(!to_evaluate), [&schedule] { schedule.ended(); });
}

// The weights are the outer weights, because checkpoints follow an average.
bool local_sgd_synchronizer::restore(const proto::Restore& x, const payload& values) {
  const bool outer = outer_ && values.size() == context_->parameters().size() * sizeof(float);
  if (outer && x.slot() == context_->rule.slots() + 1 && !outer_->momentum().empty()) {
    outer_->restore_momentum(values.as_floats());
    return true;
  }
  if (!replica_.restore(x.slot(), x.version(), x.samples(), values))
    return false;
  passed_samples_ = x.samples();
  averaged_ = x.version();
  if (outer && x.slot() == 0)
    outer_->restore_weights(values.as_floats());
  return true;
}

caf::result<proto::Ack> local_sgd_synchronizer::on_restore(const proto::Restore& x,
                                                           const payload& values) {
  if (step_ > x.version())
    return proto::Ack{}; // A late repetition: training has begun.
  if (!problem_of(x).empty() || !restore(x, values))
    return make_error(errc::malformed,
                      "worker/" + std::to_string(options_.worker) + " was given "
                        + describe(x, values.size()));
  step_ = first_step_ = x.version();
  return proto::Ack{};
}

} // namespace troupe
