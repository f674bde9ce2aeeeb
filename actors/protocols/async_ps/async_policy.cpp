#include "actors/protocols/async_ps/async_policy.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

/// For GAP_AWARE: the weight of the newest update in the running mean of how far an update moves
/// the weights.
constexpr double follow_step = 0.01;
/// For DC: the weight of the newest squares in their running mean, the factor of the correction,
/// and a term that avoids a division by 0.
constexpr float follow_squares = 0.05F;
constexpr float correction = 2;
constexpr float least_square = 1e-7F;

/// Shard 0 sends the damping (async_pacing) to the other shards if it changed by more than this
/// fraction.
constexpr double least_news = 0.01;

double distance(std::span<const float> a, std::span<const float> b) {
  double result = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    result += d * d;
  }
  return std::sqrt(result);
}

/// The number of workers that, without a buffer, would have gradients as stale as those of this
/// job. With async_ps.buffer, it is smaller than the number of chains (chains_of), because there
/// are fewer updates than gradients.
std::size_t workers_by_staleness(const proto::Job& job, std::size_t workers) {
  const std::size_t buffer = job.async_ps().buffer();
  return (chains_of(job, workers) + buffer - 1) / buffer;
}

} // namespace

std::size_t chains_of(const proto::Job& job, std::size_t workers) noexcept {
  return workers * (1 + job.pull_ahead());
}

proto::AsyncPs::Compensation compensation_of(const proto::Job& job, std::size_t workers) noexcept {
  return chains_of(job, workers) > 1 ? job.async_ps().compensation() : proto::AsyncPs::NONE;
}

async_policy::async_policy(std::shared_ptr<const job_context> context, range where,
                           std::size_t shard, std::size_t workers,
                           std::shared_ptr<pulled_versions> pulled)
  : context_(std::move(context)), where_(where), workers_(workers), first_shard_(shard == 0),
    how_(compensation_of(context_->job, workers)), moments_(where.size()),
    pacing_(workers_by_staleness(context_->job, workers), how_ == proto::AsyncPs::AUTO),
    pulled_(std::move(pulled)), buffer_(context_->job.async_ps().buffer()) {
  if (buffer_ > 1)
    sum_.resize(where.size());
  if (how_ == proto::AsyncPs::DC) {
    squares_.resize(where.size());
    corrected_.resize(where.size());
  }
}

bool async_policy::take(contribution x) {
  const auto same = [&](const contribution& y) {
    return y.header.id().worker() == x.header.id().worker()
      && y.header.id().incarnation() == x.header.id().incarnation()
      && y.header.id().sequence() == x.header.id().sequence();
  };
  if (std::ranges::any_of(waiting_, same))
    return false;
  waiting_.push_back(std::move(x));
  return true;
}

std::span<const contribution> async_policy::parts() const noexcept {
  return waiting_.empty() ? std::span<const contribution>{} : std::span{&waiting_.front(), 1};
}

planned_update async_policy::plan(std::span<const float> weights, std::uint64_t version) {
  if (buffer_ > 1)
    return waiting_.empty() ? held() : hold(waiting_.front());
  const auto& [header, gradient] = waiting_.front();
  planned_update result;
  result.gradient = gradient.values.as_floats();
  result.touched = gradient.touched;
  result.samples = header.samples();
  if (result.samples == 0)
    return result; // The worker had nothing to send.
  result.terms.factor = factor_of(header);
  switch (how_) {
  case proto::AsyncPs::AUTO: {
    result.terms.rate_factor = pacing_.damping();
    result.terms.look_ahead = true;
    if (keeps_moments()) {
      const auto& id = header.id();
      const auto moment =
        moments_.next(id.worker(), id.incarnation(), id.sequence() % chains_of(context_->job, 1));
      result.terms.moment = moment.values;
      result.terms.moment_step = moment.step;
    }
    break;
  }
  case proto::AsyncPs::STALENESS_RATE: {
    const auto staleness = version - std::min(version, header.base_version());
    result.terms.rate_factor = 1 / static_cast<double>(std::max<std::uint64_t>(staleness, 1));
    break;
  }
  case proto::AsyncPs::GAP_AWARE:
    result.terms.factor /= gap(header, weights);
    break;
  case proto::AsyncPs::DC:
    correct(waiting_.front(), weights);
    result.gradient = corrected_;
    break;
  default:
    break;
  }
  return result;
}

double async_policy::factor_of(const proto::Commit& x) const {
  const double scale = x.scale() > 0 ? x.scale() : 1;
  return scale * clip_factor(context_->rule.clip_norm, scale * x.gradient_norm());
}

// Adds a gradient to the buffer (async_ps.buffer). Statistics of layers are part of the gradient,
// but are not scaled.
planned_update async_policy::hold(const contribution& x) {
  if (x.header.samples() > 0) {
    const auto gradient = x.gradient.values.as_floats();
    const auto factor = static_cast<float>(factor_of(x.header));
    for (const auto& tensor : context_->parameters().entries()) {
      const auto common = intersect(tensor.elements(), where_);
      const float scale = tensor.kind == parameter_kind::trainable ? factor : 1;
      for (auto i = common.begin - where_.begin; i < common.end - where_.begin; ++i)
        sum_[i] += scale * gradient[i];
    }
    sum_samples_ += x.header.samples();
    ++held_;
  }
  auto result = held();
  result.complete = held_ == buffer_;
  return result;
}

planned_update async_policy::held() const {
  planned_update result{sum_, sum_samples_, {}};
  result.terms.rate_factor = pacing_.damping();
  result.terms.look_ahead = how_ == proto::AsyncPs::AUTO;
  return result;
}

double async_policy::gap(const proto::Commit& x, std::span<const float> weights) {
  const auto read = pulled_->find(x.id().worker(), x.base_version());
  if (read.empty() || !(step_length_ > 0))
    return 1;
  return 1 + distance(weights, read.as_floats()) / step_length_;
}

// Computes the corrected gradient (compensation DC). The correction uses the mean gradient. The
// result is multiplied by the number of samples, because updates expect a sum. Statistics of layers
// are part of the gradient, but are not corrected.
void async_policy::correct(const contribution& x, std::span<const float> weights) {
  const auto gradient = x.gradient.values.as_floats();
  const auto read = pulled_->find(x.header.id().worker(), x.header.base_version());
  const auto from = read.empty() ? weights : read.as_floats();
  const auto samples = static_cast<float>(x.header.samples());
  for (const auto& tensor : context_->parameters().entries()) {
    const auto common = intersect(tensor.elements(), where_);
    for (auto i = common.begin - where_.begin; i < common.end - where_.begin; ++i) {
      corrected_[i] = gradient[i];
      if (tensor.kind != parameter_kind::trainable)
        continue;
      const float g = gradient[i] / samples;
      squares_[i] += follow_squares * (g * g - squares_[i]);
      const float moved = weights[i] - from[i];
      corrected_[i] =
        samples * (g + correction * g * g * moved / std::sqrt(squares_[i] + least_square));
    }
  }
}

void async_policy::made(std::span<const float> before, std::span<const float> after,
                        const proto::Pushed& decided) {
  if (held_ == buffer_ || waiting_.empty()) {
    std::ranges::fill(sum_, 0.0F);
    held_ = 0;
    sum_samples_ = 0;
  }
  if (waiting_.empty())
    return;
  const auto header = std::move(waiting_.front().header);
  waiting_.pop_front();
  if (how_ == proto::AsyncPs::GAP_AWARE && header.samples() > 0) {
    const double length = distance(before, after);
    step_length_ = step_length_ > 0 ? step_length_ + follow_step * (length - step_length_) : length;
  }
  if (!first_shard_ || header.samples() == 0)
    return;
  pacing_.applied((header.scale() > 0 ? header.scale() : 1) * header.gradient_norm(),
                  decided.staleness(), header.loss());
  if (header.has_slopes())
    pacing_.moved(header.slopes());
}

bool async_policy::keeps_moments() const noexcept {
  return how_ == proto::AsyncPs::AUTO && buffer_ == 1 && context_->rule.moment_slot().has_value();
}

// A worker's moment has had only the updates of this worker. When it is restored, it counts as a
// moment after all updates. So it is scaled: its value after bias correction stays the same.
payload async_policy::moment(std::uint64_t updates) const {
  if (!keeps_moments())
    return {};
  const auto& rule = context_->rule;
  return moments_.mean(
    [&](std::uint64_t own) { return rule.recount(*rule.moment_slot(), own, updates); });
}

void async_policy::forget(std::uint32_t worker, std::uint64_t incarnation) {
  moments_.drop(worker, incarnation);
  if (pulled_)
    pulled_->drop(worker);
}

std::optional<proto::Pacing> async_policy::pacing() const {
  return paces() ? std::optional{pacing_.now()} : std::nullopt;
}

std::optional<proto::PacingState> async_policy::pacing_state() const {
  return paces() ? std::optional{pacing_.state()} : std::nullopt;
}

bool async_policy::restore_pacing(const proto::PacingState& x) {
  return how_ != proto::AsyncPs::AUTO || pacing_.restore(x);
}

std::optional<proto::Damping> async_policy::new_damping() {
  if (!paces() || std::abs(pacing_.damping() - sent_) <= least_news * sent_)
    return std::nullopt;
  proto::Damping result;
  result.set_gradients(pacing_.gradients());
  result.set_factor(sent_ = pacing_.damping());
  return result;
}

void async_policy::set_damping(const proto::Damping& x) {
  if (first_shard_ || x.gradients() < sent_at_)
    return;
  sent_at_ = x.gradients();
  pacing_.set_damping(x.factor());
}

} // namespace troupe
