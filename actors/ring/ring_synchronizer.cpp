#include "actors/ring/ring_synchronizer.hpp"

#include <algorithm>

namespace troupe {

ring_synchronizer::replica::replica(const job_context& context, range where)
  : where(where), versions(where.size(), replica_slots), updater(context, where.size()) {
  context.initialize(where, versions.initial());
}

ring_synchronizer::ring_synchronizer(caf::actor_config& cfg,
                                     std::shared_ptr<const job_context> context,
                                     ring_synchronizer_options options, worker_actor worker)
  : super(cfg), context_(std::move(context)), options_(std::move(options)),
    worker_(std::move(worker)) {
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
  };
}

// A step begins when the last one is applied everywhere on this rank, so the weights are there.
void ring_synchronizer::on_acquire(const acquire&) {
  acquired result;
  result.step = step_;
  for (auto& x : buckets_) {
    auto newest = x->versions.newest();
    result.ranges.push_back({x->where.begin, newest.version, std::move(newest.data)});
    x->updated = false;
  }
  std::ranges::sort(result.ranges, {}, &weight_range::begin);
  committed_ = false;
  samples_of_step_ = 0;
  send(worker_, std::move(result));
}

void ring_synchronizer::on_contribute(const contribute& x) {
  auto i = std::ranges::find_if(
    buckets_, [&](auto& b) { return b->where.begin == x.begin && b->where.end == x.end; });
  if (x.step != step_ || i == buckets_.end())
    return;
  reduce_bucket start;
  start.step = x.step;
  start.bucket = static_cast<std::uint32_t>(i - buckets_.begin());
  start.samples = x.samples;
  start.gradient = x.gradient.slice_floats(x.begin, x.end - x.begin);
  start.reply_to = caf::actor_cast<reduction_listener>(this);
  send(options_.ring, std::move(start));
}

void ring_synchronizer::on_reduced(const bucket_reduced& x) {
  auto& bucket = *buckets_.at(x.bucket);
  if (!bucket.versions.begin()) {
    // Readers (the trainer, a snapshot) are fewer than versions; this would be an error of ours.
    send(worker_, broken{"all versions of a bucket are held by readers"});
    return;
  }
  const auto old = bucket.versions.published();
  if (x.samples > 0)
    bucket.updater.apply(old, x.sum.as_floats(), x.samples, bucket.versions.next());
  else
    std::ranges::copy(old, bucket.versions.next().begin());
  bucket.versions.publish(x.step + 1);
  bucket.updated = true;
  samples_of_step_ = x.samples;
  finish_if_updated();
}

void ring_synchronizer::on_commit(const commit& x) {
  committed_ = x.step == step_;
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
  committed result;
  result.step = step_;
  result.outcome = proto::APPLIED;
  result.samples = samples_of_step_;
  samples_ += samples_of_step_;
  ++step_;
  committed_ = false;
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
    decided->set_applied(step_);
    decided->set_sequence(step_);
    decided->set_fingerprint(step_);
  }
  result.set_samples(samples_);
  result.set_version(step_);
  return result;
}

} // namespace troupe
