#include "actors/ring/ring_synchronizer.hpp"

#include "actors/checkpoint/send_capture.hpp"

#include "kernels/gradient_norm.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

ring_synchronizer::replica::replica(const job_context& context, range where)
  : where(where), versions(where.size(), replica_slots), updater(context, where) {
  context.initialize(where, versions.initial());
}

ring_synchronizer::ring_synchronizer(caf::actor_config& cfg,
                                     std::shared_ptr<const job_context> context,
                                     ring_synchronizer_options options, worker_actor worker)
  : super(cfg), context_(std::move(context)), options_(std::move(options)),
    worker_(std::move(worker)), checkpoints_(checkpoint_schedule::of_checkpoints(context_->job)),
    evaluations_(checkpoint_schedule::of_evaluations(context_->job)) {
  for (auto& where : context_->buckets())
    buckets_.push_back(std::make_unique<replica>(*context_, where));
}

ring_synchronizer::behavior_type ring_synchronizer::make_behavior() {
  return {
    [this](const acquire& x) { on_acquire(x); },
    [this](const contribute& x) { on_contribute(x); },
    [this](const commit& x) { on_commit(x); },
    [this](const abandon& x) { on_abandon(x); },
    [this](const bucket_reduced& x) { on_reduced(x); },
    [this](const broken& x) { send(worker_, x); },
    in_view(this, &ring_synchronizer::on_pull),
    in_view(this, &ring_synchronizer::on_report),
    in_view(this, &ring_synchronizer::on_restore),
  };
}

void ring_synchronizer::on_exit() {
  options_.coordinator = nullptr;
}

// A step begins when the last one is applied everywhere on this rank, so the weights are there.
void ring_synchronizer::on_acquire(const acquire& x) {
  attributes_ = x;
  acquired result;
  result.step = {step_};
  for (auto& bucket : buckets_) {
    auto newest = bucket->versions.newest();
    result.ranges.push_back({bucket->where.begin, {newest.version}, std::move(newest.data)});
    bucket->updated = false;
  }
  std::ranges::sort(result.ranges, {}, &weight_range::begin);
  committed_ = false;
  samples_of_step_ = 0;
  send(worker_, std::move(result));
}

void ring_synchronizer::on_contribute(const contribute& x) {
  auto i = std::ranges::find_if(
    buckets_, [&](auto& b) { return b->where.begin == x.begin && b->where.end == x.end; });
  if (x.step.value != step_ || i == buckets_.end())
    return;
  reduce_bucket start;
  start.step = x.step.value - first_step_;
  start.bucket = static_cast<std::uint32_t>(i - buckets_.begin());
  start.samples = x.samples;
  start.gradient = x.gradient.slice_floats(x.begin, x.end - x.begin);
  start.reply_to = caf::actor_cast<reduction_listener>(this);
  send(options_.ring, std::move(start));
}

void ring_synchronizer::on_reduced(const bucket_reduced& x) {
  auto& bucket = *buckets_.at(x.bucket);
  samples_of_step_ = x.samples;
  if (context_->rule.clip_norm > 0) {
    bucket.sum = x.sum;
    bucket.sum_of_squares = squared_norm(context_->parameters(), bucket.where, x.sum.as_floats());
    bucket.reduced = true;
    if (std::ranges::all_of(buckets_, [](auto& b) { return b->reduced; }))
      update_clipped();
  } else if (update(bucket, x.sum, x.samples, 0)) {
    finish_if_updated();
  }
}

bool ring_synchronizer::update(replica& bucket, const payload& sum, std::uint64_t samples,
                               double norm) {
  if (!bucket.versions.begin()) {
    // Readers (the trainer, a snapshot) are fewer than versions; this would be an error of ours.
    send(worker_, broken{"all versions of a bucket are held by readers"});
    return false;
  }
  const auto old = bucket.versions.published();
  if (samples > 0)
    bucket.updater.apply(old, sum.as_floats(), samples, bucket.versions.next(),
                         clip_factor(context_->rule.clip_norm, norm));
  else
    std::ranges::copy(old, bucket.versions.next().begin());
  bucket.versions.publish(step_ + 1);
  bucket.updated = true;
  return true;
}

// All ranks have the same sums, and add up their squares in the same order.
void ring_synchronizer::update_clipped() {
  double squares = 0;
  for (auto& bucket : buckets_)
    squares += bucket->sum_of_squares;
  if (!std::isfinite(squares)) {
    const auto i =
      std::ranges::find_if(buckets_, [](auto& x) { return !std::isfinite(x->sum_of_squares); });
    send(worker_,
         broken{"the gradient is not finite, first that of "
                  + first_not_finite(context_->parameters(), (*i)->where, (*i)->sum.as_floats()),
                true});
    return;
  }
  gradient_norm_ =
    std::sqrt(squares) / static_cast<double>(std::max<std::uint64_t>(samples_of_step_, 1));
  for (auto& bucket : buckets_) {
    if (!update(*bucket, std::exchange(bucket->sum, {}), samples_of_step_, *gradient_norm_))
      return;
    bucket->reduced = false;
  }
  finish_if_updated();
}

void ring_synchronizer::on_commit(const commit& x) {
  committed_ = x.step.value == step_;
  finish_if_updated();
}

void ring_synchronizer::on_abandon(const abandon& x) {
  committed result;
  result.step = x.step;
  result.outcome = proto::REQUEUED;
  send(worker_, result);
}

void ring_synchronizer::finish_if_updated() {
  if (!committed_ || !std::ranges::all_of(buckets_, [](auto& x) { return x->updated; }))
    return;
  if (options_.coordinator && (!checkpoints_.allows(step_ + 1) || !evaluations_.allows(step_ + 1)))
    return; // Until a checkpoint is written, or a version evaluated.
  committed result;
  result.step = {step_};
  result.outcome = proto::APPLIED;
  result.samples = samples_of_step_;
  result.gradient_norm = gradient_norm_;
  samples_ += samples_of_step_;
  ++step_;
  committed_ = false;
  if (options_.coordinator && evaluations_.due(step_))
    capture(evaluations_, true);
  if (options_.coordinator && checkpoints_.due(step_))
    capture(checkpoints_, false);
  send(worker_, result);
}

// One copy: a replica is kept in buckets.
caf::result<proto::Weights, payload> ring_synchronizer::on_pull(const proto::Pull&) {
  const auto count = context_->parameters().size();
  auto data = payload::floats(count);
  for (auto& x : buckets_)
    std::ranges::copy(x->versions.published(),
                      data.as_mutable_floats().begin()
                        + static_cast<std::ptrdiff_t>(x->where.begin));
  proto::Weights header;
  header.set_version(step_);
  header.set_count(count);
  return {std::move(header), std::move(data)};
}

// Every update of this rank was made from one gradient of each worker.
caf::result<proto::Report> ring_synchronizer::on_report(const proto::ReportRequest&) {
  proto::Report result;
  for (auto& x : options_.view.of(job_kind::worker)) {
    auto* decided = result.add_decided();
    decided->set_worker(x.task.index);
    decided->set_incarnation(x.incarnation);
    decided->set_applied(step_ - first_step_);
    decided->set_sequence(step_ - first_step_);
    decided->set_fingerprint(step_ - first_step_);
  }
  result.set_samples(samples_);
  result.set_version(step_ - first_step_);
  result.set_captured(checkpoints_.newest());
  result.set_captured_to_evaluate(evaluations_.newest());
  return result;
}

// -- checkpoints --------------------------------------------------------------------------------

/// The part of a vector that is kept in buckets.
template <class Source>
payload ring_synchronizer::share_of(range share, Source source) const {
  auto result = payload::floats(share.size());
  const auto out = result.as_mutable_floats();
  for (auto& x : buckets_) {
    const auto common = intersect(share, x->where);
    if (!common.empty())
      std::ranges::copy(source(*x).subspan(common.begin - x->where.begin, common.size()),
                        out.begin() + static_cast<std::ptrdiff_t>(common.begin - share.begin));
  }
  return result;
}

// The next step begins when this one is committed to the worker, so all buckets are at one version.
void ring_synchronizer::capture(checkpoint_schedule& schedule, bool to_evaluate) {
  const auto workers = options_.view.of(job_kind::worker);
  const auto self =
    std::ranges::find(workers, options_.worker, [](auto& x) { return x.task.index; });
  const auto rank = static_cast<std::size_t>(self - workers.begin());
  const auto share = part_of(context_->parameters().size(), workers.size(), rank);
  std::vector<payload> slots{share_of(share, [](auto& x) { return x.versions.published(); })};
  for (std::size_t i = 0; i < context_->rule.slots() && !to_evaluate; ++i)
    slots.push_back(share_of(share, [i](auto& x) { return x.updater.state(i); }));
  proto::CheckpointPart header;
  header.set_view(view_number());
  header.set_version(step_);
  header.set_part(static_cast<std::uint32_t>(rank));
  header.set_to_evaluate(to_evaluate);
  auto* mark = header.add_mark();
  mark->set_worker(options_.worker);
  mark->set_incarnation(self->incarnation);
  mark->set_applied(step_ - first_step_);
  mark->set_sequence(step_ - first_step_);
  mark->set_lease(attributes_.lease);
  mark->set_batch(attributes_.batch);
  schedule.began(step_);
  const auto ended = [this, &schedule] {
    schedule.ended();
    finish_if_updated();
  };
  send_capture(this, options_.coordinator, options_.requests, std::move(header), slots, ended);
}

caf::result<proto::Ack> ring_synchronizer::on_restore(const proto::Restore& x,
                                                      const payload& values) {
  if (step_ > x.version())
    return proto::Ack{}; // A repetition that came late: training has begun.
  if (x.slot() > context_->rule.slots()
      || values.size() != context_->parameters().size() * sizeof(float))
    return make_error(errc::malformed,
                      "worker/" + std::to_string(options_.worker) + " was given "
                        + std::to_string(values.size()) + " bytes of slot "
                        + std::to_string(x.slot()) + " of a checkpoint, which it cannot use");
  for (auto& bucket : buckets_) {
    const auto mine = values.as_floats().subspan(bucket->where.begin, bucket->where.size());
    if (x.slot() > 0) {
      bucket->updater.restore(x.slot() - 1, mine);
    } else if (!restored_) {
      // Nobody reads before training begins, so there is a slot.
      bucket->versions.begin();
      std::ranges::copy(mine, bucket->versions.next().begin());
      bucket->versions.publish(x.version());
    }
    bucket->updater.restore(x.samples(), x.version());
  }
  restored_ = restored_ || x.slot() == 0;
  step_ = first_step_ = x.version();
  return proto::Ack{};
}

} // namespace troupe
