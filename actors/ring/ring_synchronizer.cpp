#include "actors/ring/ring_synchronizer.hpp"
#include "actors/model/replica_state.hpp"
#include "actors/replica/replica_steps.hpp"
#include "kernels/cpu/rounding.hpp"
#include "messages/problems.hpp"
#include "messages/scheduler.hpp"

#include <algorithm>

namespace troupe {

namespace {

std::size_t rank_of(std::uint32_t worker, const std::vector<member>& workers) {
  const auto i = std::ranges::find(workers, worker, [](auto& x) { return x.task.index; });
  return static_cast<std::size_t>(i - workers.begin());
}

} // namespace

ring_place place_of(const job_context& context, std::size_t rank, std::size_t ranks, bool on_gpus) {
  ring_place result;
  result.on_gpus = on_gpus;
  result.rank = rank;
  result.ranks = ranks;
  const auto bytes = context.job.runtime().ring_chunk_bytes();
  result.chunk_elements = std::max<std::size_t>(bytes / sizeof(float), 1);
  result.in_halves = divides_state(context, ranks);
  if (context.job.exchange_precision() == proto::BFLOAT16)
    result.round = [all = std::make_shared<const std::pair<layout, std::vector<range>>>(
                      context.parameters(), context.buckets())](std::size_t bucket, range part,
                                                                std::span<float> values) {
      const auto begin = all->second[bucket].begin;
      round_to_bfloat16(all->first, {begin + part.begin, begin + part.end}, values);
    };
  if (ranks > 1 && context.job.ring().verify_every_steps() > 0)
    result.checked = check_elements(ranks, context.buckets().size());
  return result;
}

std::shared_ptr<replica_store> make_replica(std::shared_ptr<const job_context> context,
                                            const ring_place& place, replica_home home) {
  return std::make_shared<replica_store>(std::move(context),
                                         place.in_halves ? own_segment(place) : 0,
                                         place.in_halves ? place.ranks : 1, std::move(home));
}

ring_synchronizer::ring_synchronizer(caf::actor_config& cfg,
                                     std::shared_ptr<const job_context> context,
                                     ring_synchronizer_options options, worker_actor worker)
  : super(cfg), context_(std::move(context)), options_(std::move(options)),
    worker_(std::move(worker)), workers_(options_.view.of(job_kind::worker)),
    rank_(rank_of(options_.worker, workers_)),
    place_(place_of(*context_, rank_, workers_.size(), options_.replica->home().in_ring)),
    replica_(*options_.replica), round_(context_, replica_, place_),
    checkpoints_(checkpoint_schedule::of_checkpoints(context_->job)),
    evaluations_(checkpoint_schedule::of_evaluations(context_->job)) {}

ring_synchronizer::behavior_type ring_synchronizer::make_behavior() {
  report_device_errors(*this, worker_, replica_.home().device);
  return {
    [this](const acquire& x) { on_acquire(x); },
    [this](const contribute& x) { on_contribute(x); },
    [this](const commit& x) { on_commit(x); },
    [this](const abandon& x) { on_abandon(x); },
    [this](const reduction& x) { on_reduced(x); },
    [this](const broken& x) { send(worker_, x); },
    in_view(this, &ring_synchronizer::on_pull),
    in_view(this, &ring_synchronizer::on_report),
    in_view(this, &ring_synchronizer::on_restore),
  };
}

void ring_synchronizer::on_exit() {
  options_.coordinator = nullptr;
}

// -- a step -------------------------------------------------------------------------------------

// A worker begins a step only after the update of the previous step is published, so the weights
// are ready.
void ring_synchronizer::on_acquire(const acquire& x) {
  attributes_ = x;
  under_way_ = true;
  round_.begin(step_ - first_step_);
  send(worker_, acquired_from(replica_, {step_}));
  std::vector<ring_contribution> start;
  round_.compare(start);
  proceed(std::move(start));
}

void ring_synchronizer::on_contribute(const contribute& x) {
  if (x.step.value != step_)
    return;
  std::vector<ring_contribution> start;
  round_.contribute({x.begin, x.end}, x.samples, gradient_of(x), start);
  proceed(std::move(start));
}

void ring_synchronizer::on_commit(const commit& x) {
  if (x.step.value != step_)
    return;
  loss_scale_.reset();
  if (x.loss_scale)
    loss_scale_ = to_proto(*x.loss_scale);
  std::vector<ring_contribution> start;
  round_.commit(x.finite(), x.squared_norm, start);
  proceed(std::move(start));
}

void ring_synchronizer::on_reduced(const reduction& x) {
  std::vector<ring_contribution> start;
  round_.reduced(x, start);
  proceed(std::move(start));
}

void ring_synchronizer::on_abandon(const abandon& x) {
  committed result;
  result.step = x.step;
  result.outcome = proto::REQUEUED;
  send(worker_, result);
}

void ring_synchronizer::proceed(std::vector<ring_contribution> start) {
  for (auto& x : start)
    send(options_.ring, reduce_bucket{std::move(x), caf::actor_cast<reduction_listener>(this)});
  if (!round_.difference())
    finish_if_decided();
  else if (std::exchange(under_way_, false))
    send(worker_, broken{text_of(*round_.difference())});
}

// The text of the error: which workers differ, and in which tensors.
std::string ring_synchronizer::text_of(const replica_difference& x) const {
  const auto names = [this](const auto& ranks) {
    std::string result;
    for (const auto rank : ranks)
      result += (result.empty() ? "" : ", ") + to_string(workers_[rank].task);
    return result;
  };
  const auto where = replica_.where(x.bucket);
  std::string tensors;
  for (const auto& tensor : context_->parameters().entries())
    if (!intersect(tensor.elements(), where).empty())
      tensors += (tensors.empty() ? "" : ", ") + tensor.name;
  return "at step " + std::to_string(step_) + " the weights of "
    + (x.majority ? names(x.ranks) + " differ from those of the other workers"
                  : "the workers differ (" + names(x.ranks) + ")")
    + ", in " + tensors
    + ". Steps since the last comparison (ring.verify_every_steps) cannot be trusted: check the "
      "memory and the processor of that host, and continue from a checkpoint before them";
}

void ring_synchronizer::finish_if_decided() {
  if (!under_way_ || !round_.outcome())
    return;
  under_way_ = false;
  const auto& outcome = *round_.outcome();
  committed result;
  result.step = {step_++};
  result.outcome = outcome.quarantined[rank_] ? proto::QUARANTINED : proto::APPLIED;
  result.samples = outcome.samples;
  result.gradient_norm = outcome.gradient_norm;
  replica_.publish(step_, outcome.left_out);
  record(outcome);
  renew_turn(); // After a long update, receivers still run on this thread.
  if (options_.coordinator && evaluations_.due(step_))
    capture(evaluations_, true);
  if (options_.coordinator && checkpoints_.due(step_))
    capture(checkpoints_, false);
  send(worker_, result);
}

// Records the decision about each worker's gradient of this step. A rank knows only the lease and
// the loss scale of its own worker.
void ring_synchronizer::record(const ring_outcome& x) {
  samples_ += x.samples;
  quarantined_samples_ += x.left_out;
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    proto::GradientId id;
    id.set_worker(workers_[rank].task.index);
    id.set_incarnation(workers_[rank].incarnation);
    id.set_sequence(step_ - first_step_);
    proto::Pushed decision;
    decision.set_outcome(x.quarantined[rank] ? proto::QUARANTINED : proto::APPLIED);
    if (rank == rank_)
      journal_.record(id, decision, attributes_.lease, attributes_.batch,
                      loss_scale_ ? &*loss_scale_ : nullptr);
    else
      journal_.record(id, decision, 0, 0);
  }
}

// -- requests of other actors ---------------------------------------------------------------------

// Copies the weights, because the answer is one vector and the replica is stored in buckets.
caf::result<proto::Weights, payload> ring_synchronizer::on_pull(const proto::Pull&) {
  const auto count = context_->parameters().size();
  proto::Weights header;
  header.set_version(replica_.version());
  header.set_count(count);
  return {std::move(header), replica_.evaluated({0, count})};
}

caf::result<proto::Report> ring_synchronizer::on_report(const proto::ReportRequest& x) {
  if (options_.coordinator && step_ > first_step_ && checkpoints_.due_at_end(step_))
    capture(checkpoints_, false);
  auto promise = make_response_promise<proto::Report>();
  request(options_.ring, caf::infinite, x)
    .then(
      [this, promise](proto::Report result) mutable {
        for (auto& decided : journal_.decided())
          *result.add_decided() = std::move(decided);
        result.set_samples(samples_);
        result.set_quarantined_samples(quarantined_samples_);
        result.set_version(step_ - first_step_);
        result.set_captured(checkpoints_.newest());
        result.set_captured_to_evaluate(evaluations_.newest());
        promise.deliver(std::move(result));
      },
      [promise](caf::error& error) mutable { promise.deliver(std::move(error)); });
  return promise;
}

// All buckets have the version `step_`, because publish() changes all of them at once.
void ring_synchronizer::capture(checkpoint_schedule& schedule, bool to_evaluate) {
  proto::CheckpointPart header;
  header.set_view(view_number());
  header.set_version(step_);
  header.set_to_evaluate(to_evaluate);
  *header.add_mark() = journal_.decided(options_.worker, workers_[rank_].incarnation);
  schedule.began(step_);
  send_capture(this, options_.coordinator, options_.requests, std::move(header),
               captured_state(!to_evaluate), [this, &schedule, step = step_](bool kept) {
                 if (schedule.ended(step, kept))
                   capture(checkpoints_, false);
               });
}

// The part of the weights and of the optimizer's state that this rank sends for a checkpoint or an
// evaluation. If the optimizer's state is divided among the ranks, this part is the rank's own
// segment of each bucket.
std::vector<captured> ring_synchronizer::captured_state(bool with_state) const {
  const auto ranks = place_.ranks;
  const auto parts = replica_parts(*context_, ranks);
  std::vector<captured> result;
  for (auto i = place_.in_halves ? own_segment(place_) : rank_; i < parts.size(); i += ranks)
    for (auto& x : slots_of(static_cast<std::uint32_t>(i), replica_.capture(parts[i], with_state)))
      result.push_back(std::move(x));
  return result;
}

caf::result<proto::Ack> ring_synchronizer::on_restore(const proto::Restore& x,
                                                      const payload& values) {
  if (step_ > x.version())
    return proto::Ack{}; // Training has begun, so this is a late repetition.
  if (!problem_of(x).empty() || !replica_.restore(x, values))
    return make_error(errc::malformed,
                      "worker/" + std::to_string(options_.worker) + " was given "
                        + describe(x, values.size()));
  step_ = first_step_ = x.version();
  return proto::Ack{};
}

} // namespace troupe
