#include "actors/ring/ring_step.hpp"

#include "kernels/cpu/reduce.hpp"
#include "kernels/optimizers/gradient_norm.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe {

namespace {

payload zeros(std::size_t count) {
  auto result = payload::floats(count);
  std::ranges::fill(result.as_mutable_floats(), 0.0F);
  return result;
}

} // namespace

ring_step::ring_step(std::shared_ptr<const job_context> context, replica_store& replica,
                     const ring_place& place)
  : context_(std::move(context)), replica_(replica), place_(place) {}

void ring_step::begin(std::uint64_t step) {
  step_ = step;
  attempt_ = 0;
  buckets_.assign(replica_.buckets(), {});
  committed_ = false;
  comparing_ = compares();
  finite_ = true;
  left_out_.reset();
  outcome_.reset();
}

bool ring_step::compares() const {
  return place_.checked > 0 && replica_.version() % context_->job.ring().verify_every_steps() == 0;
}

void ring_step::compare(std::vector<ring_contribution>& start) {
  if (!comparing_)
    return;
  std::vector<std::uint64_t> hashes;
  for (std::size_t i = 0; i < replica_.buckets(); ++i)
    hashes.push_back(hash_of_bits(replica_.published(i)));
  auto own = zeros(place_.checked);
  put_hashes(hashes, place_.rank, own.as_mutable_floats());
  start.push_back({{step_, 0, left_out_number() + 1}, 0, std::move(own)});
}

void ring_step::contribute(range where, std::uint64_t samples, payload gradient,
                           std::vector<ring_contribution>& start) {
  const auto bucket = replica_.find(where);
  const auto expected = gradients_on_gpu() ? 0 : where.size() * sizeof(float);
  if (outcome_ || !bucket || buckets_[*bucket].own || gradient.size() != expected)
    return;
  own_samples_ = samples;
  if (gradients_on_gpu() && !in_ring()) {
    buckets_[*bucket].own = std::move(gradient);
    buckets_[*bucket].reduced = true;
    samples_ = samples;
    if (!clips())
      replica_.stage(*bucket, {}, samples);
    return;
  }
  buckets_[*bucket].own = gradient;
  start.push_back({{step_, 0, static_cast<std::uint32_t>(*bucket)}, samples, std::move(gradient)});
}

void ring_step::commit(bool finite, double squared_norm, std::vector<ring_contribution>& start) {
  if (committed_)
    return;
  committed_ = true;
  own_finite_ = finite;
  squares_ = squared_norm;
  if (gradients_on_gpu() && !in_ring() && !finite) {
    finite_ = false;
    all_samples_ = samples_;
    decide();
    return;
  }
  advance(start);
}

void ring_step::reduced(const reduction& x, std::vector<ring_contribution>& start) {
  if (x.id.step != step_ || x.id.attempt != attempt_ || outcome_ || difference_)
    return;
  if (place_.in_halves && x.id.bucket < buckets_.size()) {
    take_part(x, start);
    return;
  }
  if (x.id.bucket == left_out_number() + 1) {
    comparing_ = false;
    difference_ = compare_hashes(x.sum.as_floats(), place_.ranks);
  } else if (x.id.bucket == left_out_number()) {
    left_out_ = x;
  } else if (in_ring()) {
    take_turn(x, start);
  } else {
    take(x);
  }
  advance(start);
}

std::uint32_t ring_step::left_out_number() const {
  return static_cast<std::uint32_t>((place_.in_halves || place_.on_gpus ? 2 : 1) * buckets_.size());
}

// Handles the end of a collective without elements, for gradients on GPUs. The first collective of
// a bucket lets this rank add up its segment, and the second one lets it copy the other segments.
// Then the update is staged, unless it needs the norm of all sums. If a sum is not finite, retry()
// discards the update.
void ring_step::take_turn(const reduction& x, std::vector<ring_contribution>& start) {
  const auto i = x.id.bucket % buckets_.size();
  if (x.id.bucket < buckets_.size()) {
    samples_ = x.samples;
    replica_.add_up(i);
    start.push_back({{step_, attempt_, static_cast<std::uint32_t>(buckets_.size() + i)}, 0, {}});
    return;
  }
  replica_.gather(i);
  if (!clips())
    replica_.stage(i, {}, samples_);
  buckets_[i].reduced = true;
}

void ring_step::take_part(const reduction& x, std::vector<ring_contribution>& start) {
  const auto sum = x.sum.as_floats();
  replica_.stage(x.id.bucket, sum, x.samples);
  auto part = replica_.staged_part(x.id.bucket);
  if (!all_finite(sum))
    std::ranges::fill(part.as_mutable_floats(), std::numeric_limits<float>::quiet_NaN());
  const auto gather = static_cast<std::uint32_t>(buckets_.size() + x.id.bucket);
  start.push_back({{step_, attempt_, gather}, x.samples, std::move(part)});
}

// Takes the sum of a bucket and stages the bucket's update. If the job clips by norm, it only keeps
// the sum, until the norm is known. If the collectives run in halves, `x` is not a sum but the
// bucket's next weights, gathered from all ranks.
void ring_step::take(const reduction& x) {
  const auto i = x.id.bucket % buckets_.size();
  auto& bucket = buckets_[i];
  bucket.reduced = true;
  samples_ = x.samples;
  const auto sum = x.sum.as_floats();
  // The update adds `sum` and the addend, and checks whether the result is finite. This saves a
  // pass over the memory. If the result is not finite, the update is discarded later.
  if (finite_ && !place_.in_halves && !clips() && x.samples > 0) {
    replica_.stage(x.id.bucket, sum, x.samples,
                   {.addend = x.addend.as_floats(), .finite = &finite_});
    return;
  }
  finite_ = finite_ && all_finite(sum) && all_finite(x.addend.as_floats());
  if (!finite_)
    return;
  if (place_.in_halves) {
    replica_.complete(i, sum);
  } else if (!clips()) {
    replica_.stage(x.id.bucket, sum, x.samples);
  } else {
    bucket.sum = x.sum;
    bucket.squares =
      squared_norm(context_->parameters(), replica_.where(x.id.bucket), x.sum.as_floats());
  }
}

void ring_step::advance(std::vector<ring_contribution>& start) {
  if (!committed_ || comparing_ || difference_
      || !std::ranges::all_of(buckets_, &bucket_state::reduced) || (attempt_ == 1 && !left_out_))
    return;
  if (in_ring()) {
    squares_ = replica_.squared_norm_of_sums();
    finite_ = std::isfinite(squares_);
  }
  if (finite_ || attempt_ == 1)
    decide();
  else
    retry(start);
}

// Starts the second attempt of the step. This rank's gradient is left out if it is not finite.
// Either the worker has reported that it is not finite, or this function finds it out (only if the
// gradient is in the host's memory).
void ring_step::retry(std::vector<ring_contribution>& start) {
  replica_.discard();
  for (auto& x : buckets_) {
    own_finite_ = own_finite_ && all_finite(x.own->as_floats());
    x.reduced = false;
    x.sum = {};
  }
  attempt_ = 1;
  finite_ = true;
  all_samples_ = samples_;
  if (in_ring() && !own_finite_)
    replica_.clear_gradient();
  for (std::uint32_t i = 0; i < buckets_.size(); ++i)
    start.push_back(
      {{step_, 1, i},
       own_finite_ ? own_samples_ : 0,
       own_finite_ || in_ring() ? *buckets_[i].own : zeros(replica_.where(i).size())});
  auto out = zeros(place_.ranks);
  if (!own_finite_)
    out.as_mutable_floats()[place_.rank] = 1;
  start.push_back({{step_, 1, left_out_number()}, own_finite_ ? 0 : own_samples_, std::move(out)});
}

void ring_step::decide() {
  ring_outcome result;
  result.samples = samples_;
  result.quarantined.assign(place_.ranks, false);
  if (left_out_) {
    result.left_out = left_out_->samples;
    for (std::size_t i = 0; i < place_.ranks; ++i)
      result.quarantined[i] = left_out_->sum.as_floats()[i] != 0;
  }
  if (!finite_) {
    result.samples = 0;
    result.left_out = all_samples_;
    result.quarantined.assign(place_.ranks, true);
    stage_nothing();
  } else if (clips()) {
    if (!gradients_on_gpu()) {
      squares_ = 0;
      for (auto& x : buckets_)
        squares_ += x.squares;
    }
    result.gradient_norm =
      std::sqrt(squares_) / static_cast<double>(std::max<std::uint64_t>(samples_, 1));
    stage_clipped(*result.gradient_norm);
  }
  outcome_ = std::move(result);
  for (auto& x : buckets_)
    x.own.reset();
}

void ring_step::stage_clipped(double norm) {
  const auto factor = clip_factor(context_->rule.clip_norm, norm);
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    replica_.stage(i, std::exchange(buckets_[i].sum, {}).as_floats(), samples_, factor);
}

void ring_step::stage_nothing() {
  replica_.discard();
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    replica_.stage(i, {}, 0);
}

} // namespace troupe
