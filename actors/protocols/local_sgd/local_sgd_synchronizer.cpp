#include "actors/protocols/local_sgd/local_sgd_synchronizer.hpp"

#include "actors/replica/replica_steps.hpp"
#include "kernels/optimizers/gradient_norm.hpp"
#include "messages/problems.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

std::vector<std::size_t> local_sgd_sizes(const job_context& context, std::size_t workers) {
  std::vector<std::size_t> result;
  const weight_fragments fragments{context};
  for (int i = 0; i < 2; ++i) {
    for (auto& piece : fragments.pieces())
      result.push_back(piece.size());
    result.push_back(replica_account::elements(workers));
  }
  return result;
}

local_sgd_synchronizer::local_sgd_synchronizer(caf::actor_config& cfg,
                                               std::shared_ptr<const job_context> context,
                                               local_sgd_options options, worker_actor worker)
  : super(cfg), context_(std::move(context)), options_(std::move(options)),
    worker_(std::move(worker)), workers_(options_.view.of(job_kind::worker).size()),
    contribute_(context_->job.local_sgd().behind() == proto::LocalSgd::CONTRIBUTE),
    fragments_(*context_), replica_(*options_.replica),
    account_(workers_of(options_.view), options_.rank),
    checkpoints_(checkpoint_schedule::of_checkpoints(context_->job)),
    evaluations_(checkpoint_schedule::of_evaluations(context_->job)) {
  if (context_->job.local_sgd().has_outer())
    outer_.emplace(context_);
}

local_sgd_synchronizer::behavior_type local_sgd_synchronizer::make_behavior() {
  report_device_errors(*this, worker_, replica_.home().device);
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
  if (waits()) {
    waiting_ = x;
    return;
  }
  attributes_ = x;
  computing_ = true;
  send(worker_, acquired_from(replica_, {step_}));
}

void local_sgd_synchronizer::on_contribute(const contribute& x) {
  const auto bucket = replica_.find({x.begin, x.end});
  if (x.step.value != step_ || !bucket)
    return;
  auto gradient = gradient_of(x);
  if (context_->rule.clip_norm > 0)
    unclipped_[*bucket] = std::move(gradient);
  else
    replica_.stage(*bucket, gradient.as_floats(), x.samples, terms_of(x.samples));
}

// The other workers train meanwhile, probably as many samples as this worker. So between averages,
// the learning-rate schedule counts this worker's samples times the number of workers.
range_updater::terms local_sgd_synchronizer::terms_of(std::uint64_t samples, double factor) const {
  range_updater::terms result{.factor = factor};
  result.others = (workers_ - 1) * samples;
  return result;
}

// Stages the step's gradient, clipped by this worker's own norm.
void local_sgd_synchronizer::stage_clipped(const commit& x, double norm) {
  const auto factor = clip_factor(context_->rule.clip_norm, norm);
  for (auto& [bucket, gradient] : std::exchange(unclipped_, {}))
    replica_.stage(bucket, gradient.as_floats(), x.samples, terms_of(x.samples, factor));
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
  trained_ = {attributes_.lease, attributes_.batch};
  loss_scale_ = x.loss_scale;
  ++step_;
  replica_.publish(step_, x.finite() ? 0 : workers_ * x.samples);
  computing_ = false;
  apart_ = true;
  ended_ = result;
  if (!next_)
    next_ = due();
  proceed();
}

// Makes the step without its gradient, because the gradient is not finite.
void local_sgd_synchronizer::leave_out() {
  replica_.discard();
  for (std::size_t i = 0; i < replica_.buckets(); ++i)
    replica_.stage(i, {}, 0);
}

void local_sgd_synchronizer::on_abandon(const abandon& x) {
  committed result;
  result.step = x.step;
  result.outcome = proto::REQUEUED;
  send(worker_, result);
  computing_ = false;
  proceed();
}

void local_sgd_synchronizer::finish_step() {
  if (ended_)
    send(worker_, *std::exchange(ended_, std::nullopt));
}

// -- averages -----------------------------------------------------------------------------------

std::optional<local_sgd_synchronizer::turn> local_sgd_synchronizer::due() const {
  const auto pieces = fragments_.due(step_);
  if (!pieces)
    return std::nullopt;
  return turn{contribute_ ? kind::on_demand : kind::scheduled, *pieces};
}

void local_sgd_synchronizer::demand() {
  next_ = turn{kind::on_demand, fragments_.all()};
  proceed();
}

// Continues everything that can continue: averages, readers, and the worker's steps. If the next
// average is due before the current average is complete, the worker's steps wait.
void local_sgd_synchronizer::proceed() {
  if (average_ && average_->missing == 0 && waits() && !computing_)
    take_in();
  if (!average_ && next_ && !computing_)
    begin_average(*std::exchange(next_, std::nullopt));
  if (waits())
    return;
  for (auto& answer : std::exchange(pulls_, {}))
    answer_pull(answer);
  if (counted() && !reports_.empty() && !apart_ && options_.coordinator && step_ > first_step_
      && checkpoints_.due_at_end(step_))
    capture(checkpoints_, false);
  if (counted())
    for (auto& answer : std::exchange(reports_, {}))
      answer.deliver(report());
  if (auto x = std::exchange(waiting_, std::nullopt))
    on_acquire(*x);
  finish_step();
}

void local_sgd_synchronizer::begin_average(const turn& what) {
  const bool all = what.pieces == fragments_.all();
  if (workers_ == 1 && !outer_) {
    account_.exchanged(account_.own_counts(), account_.own_samples(), account_.own_samples());
    apart_ = apart_ && !all;
    capture_due();
    return;
  }
  average_ = average{what, step_, account_.own_samples(), what.pieces.size() + 1, {}, 0};
  if (!all || contribute_)
    average_->sums.resize(what.pieces.size());
  for (auto i = what.pieces.begin; i < what.pieces.end; ++i)
    contribute_piece(i);
  const auto counts = account_.own_counts();
  auto own = payload::floats(counts.size());
  std::ranges::copy(counts, own.as_mutable_floats().begin());
  reduce(fragments_.pieces().size(), std::move(own));
  ++averages_;
}

// Gives a piece of this replica to the ring. In an average of all weights, the worker waits, so no
// copy is needed. In an average of a fragment, the worker makes further steps meanwhile, so the
// piece is copied.
void local_sgd_synchronizer::contribute_piece(std::size_t piece) {
  const auto where = fragments_.pieces()[piece];
  if (!whole(*average_)) {
    average_->captured.push_back(replica_.weights(where));
    reduce(piece, average_->captured.back());
    return;
  }
  for (auto& x : replica_.newest())
    if (x.begin <= where.begin && where.end <= x.begin + x.data.as_floats().size())
      reduce(piece, x.data.slice_floats(where.begin - x.begin, where.size()));
}

void local_sgd_synchronizer::reduce(std::size_t vector, payload values) {
  const auto vectors = fragments_.pieces().size() + 1;
  ring_contribution mine;
  mine.id.step = averages_;
  mine.id.bucket =
    static_cast<std::uint32_t>(static_cast<std::size_t>(average_->what.why) * vectors + vector);
  mine.samples = average_->own_samples;
  mine.values = std::move(values);
  send(options_.ring, reduce_bucket{std::move(mine), caf::actor_cast<reduction_listener>(this)});
}

void local_sgd_synchronizer::on_segment(const proto::Segment& x, const payload& data) {
  const auto vectors = fragments_.pieces().size() + 1;
  const bool demanded = x.bucket() >= vectors && x.bucket() < 2 * vectors;
  if (demanded && x.step() == averages_)
    demand();
  send(options_.ring, x, data);
}

void local_sgd_synchronizer::on_reduced(const reduction& x) {
  if (!average_)
    return;
  const auto i = x.id.bucket % (fragments_.pieces().size() + 1);
  if (i == fragments_.pieces().size()) {
    const auto sum = x.sum.as_floats();
    average_->counts.assign(sum.begin(), sum.end());
    average_->samples = x.samples;
  } else if (average_->sums.empty()) {
    take(i, x.sum, {});
  } else {
    average_->sums[i - average_->what.pieces.begin] = x.sum;
  }
  --average_->missing;
  proceed();
}

/// Computes the new weights of a piece from the sum of all workers' weights, and puts them into the
/// replica.
/// @param captured the replica's weights when the average of a fragment began. The changes of
/// trainable weights since then are added to the new weights. Empty in an average of all weights,
/// because the worker makes no steps meanwhile
void local_sgd_synchronizer::take(std::size_t piece, const payload& sum, const payload& captured) {
  const auto where = fragments_.pieces()[piece];
  const auto share = 1 / static_cast<float>(workers_);
  mean_.resize(where.size());
  std::ranges::transform(sum.as_floats(), mean_.begin(), [share](float y) { return y * share; });
  if (outer_)
    outer_->step(where, mean_);
  if (captured.size() > 0) {
    const auto now = replica_.weights(where);
    for (const auto& tensor : context_->parameters().entries()) {
      const auto common = intersect(tensor.elements(), where);
      if (tensor.kind == parameter_kind::trainable)
        for (auto k = common.begin - where.begin; k < common.end - where.begin; ++k)
          mean_[k] += now.as_floats()[k] - captured.as_floats()[k];
    }
  }
  replica_.replace(where, mean_);
}

// Ends the current average: puts its pieces into the replica and takes the exchanged counts. Now it
// is known how many samples all workers have trained before the average. For the samples since
// then, the learning-rate schedule still has an estimate (terms_of).
void local_sgd_synchronizer::take_in() {
  const auto x = *std::exchange(average_, std::nullopt);
  if (!account_.fits(x.counts, x.samples, x.own_samples)) {
    send(worker_,
         broken{"the workers' counts of samples and of gradients that were left out do "
                "not add up"});
    return;
  }
  const auto most = account_.most_steps(x.counts);
  if (!contribute_ || most > 0)
    for (std::size_t i = 0; i < x.sums.size(); ++i)
      take(x.what.pieces.begin + i, x.sums[i], whole(x) ? payload{} : x.captured[i]);
  step_ += most - account_.own_steps(x.counts);
  account_.exchanged(x.counts, x.samples, x.own_samples);
  passed_samples_ += x.samples;
  replica_.set_samples(passed_samples_ + workers_ * account_.own_samples());
  averaged_ = x.step;
  apart_ = apart_ && !whole(x);
  capture_due();
}

// -- readers ------------------------------------------------------------------------------------

// Starts an average on demand if the reader needs one. This request arrives before the worker gets
// data of the next epoch, because links keep the order of messages. So all workers are between two
// steps when the average begins.
//
// With CONTRIBUTE, always starts an average. Even if an average is under way on this worker, other
// workers may have ended that average and made further steps.
caf::result<proto::Weights, payload> local_sgd_synchronizer::on_pull(const proto::Pull&) {
  auto answer = make_response_promise<proto::Weights, payload>();
  pulls_.push_back(answer);
  if (contribute_ || (apart_ && !(outer_ && !may_be_over()) && !waits()))
    demand();
  else
    proceed();
  return answer;
}

// True if the last epoch may have ended, because the samples of all epochs may be trained. This
// function counts the largest possible number of trained samples: the samples of all workers up to
// the last average, this worker's samples since then, and at most one batch per step of each other
// worker since then.
bool local_sgd_synchronizer::may_be_over() const {
  const auto steps = step_ - averaged_;
  const auto least = passed_samples_ + account_.own_samples();
  return least + (workers_ - 1) * context_->gradient_samples() * steps
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

// Answers with the final report once the counts of all workers are known. Averages exchange these
// counts. Worker 0 gets this request before the other workers, and starts an average on demand in
// two cases. Either steps were made since the last average, because the run ends before its last
// epoch. Or the job has CONTRIBUTE, and worker 0 does not know whether other workers have made
// steps since then. If the last average is still under way on this worker, the answer waits for its
// end.
caf::result<proto::Report> local_sgd_synchronizer::on_report(const proto::ReportRequest&) {
  reports_.push_back(make_response_promise<proto::Report>());
  auto answer = reports_.back();
  if (options_.rank == 0 && (contribute_ || (apart_ && !waits())))
    demand();
  else
    proceed();
  return answer;
}

proto::Report local_sgd_synchronizer::report() const {
  auto result = account_.report();
  result.set_version(step_ - first_step_);
  result.set_captured(checkpoints_.newest());
  result.set_captured_to_evaluate(evaluations_.newest());
  return result;
}

} // namespace troupe
