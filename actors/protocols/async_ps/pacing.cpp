#include "actors/protocols/async_ps/pacing.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace troupe {

namespace {

/// Weight of a new gradient in the running means of norm and staleness.
constexpr double follow = 0.02;

/// The running means of the slopes cover this fraction of a round (one gradient of each worker).
/// They cover at least `least_memory` gradients, because the slope of a single gradient is mostly
/// noise.
constexpr double slope_memory = 0.2;
constexpr double least_memory = 3;
/// The rate falls if the share (see async_pacing) exceeds `most_share`. It falls fastest if the
/// share exceeds `most_share + share_width`.
constexpr double most_share = 0.6;
constexpr double share_width = 0.3;
/// Changes of the rate per round: the largest fall, the rise if the weights do not overshoot much,
/// and the largest additional rise if they stop before the minimum along their path.
constexpr double fall = 0.8;
constexpr double rise = 0.05;
constexpr double further_rise = 0.1;

/// The guard (see async_pacing) acts if the loss is higher than its minimum by more than
/// `guard_margin` times the first loss, for `guard_patience` rounds.
constexpr double guard_margin = 0.5;
constexpr double guard_patience = 4;

} // namespace

double limit_factor(double norm, const proto::Pacing& known) noexcept {
  if (!(known.norm() > 0) || !(known.staleness() > 0))
    return 1;
  const double most = (1 + 8 / (known.staleness() * known.staleness())) * known.norm();
  return norm > most ? most / norm : 1;
}

double async_pacing::first_damping(std::size_t workers) noexcept {
  return 1 / std::sqrt(static_cast<double>(workers));
}

async_pacing::async_pacing(std::size_t workers, bool damps)
  : workers_(workers), damps_(damps), least_damping_(1 / static_cast<double>(workers)),
    staleness_(static_cast<double>(workers)), damping_(damps ? first_damping(workers) : 1) {}

void async_pacing::applied(double norm, std::uint64_t staleness, double loss) noexcept {
  staleness_ += follow * (1 + static_cast<double>(staleness) - staleness_);
  norm_ = count_ == 0 ? norm : norm_ + follow * (norm - norm_);
  ++count_;
  if (damps_)
    guard(loss);
}

void async_pacing::guard(double loss) noexcept {
  if (count_ == 1)
    first_loss_ = loss_ = least_loss_ = loss;
  loss_ += (loss - loss_) / std::min(static_cast<double>(count_), staleness_ + 10);
  least_loss_ = std::min(least_loss_, loss_);
  if (loss_ <= least_loss_ + guard_margin * first_loss_)
    low_ = count_;
  if (static_cast<double>(count_ - low_) <= guard_patience * staleness_)
    return;
  most_ /= 2;
  damping_ = std::min(damping_ / 2, most_);
  ++halvings_;
  low_ = count_;
}

void async_pacing::moved(const proto::Slopes& x) noexcept {
  if (!damps_ || !std::isfinite(x.before()) || !std::isfinite(x.after()))
    return;
  const double weight = 1 / (1 + std::max(least_memory, slope_memory * staleness_));
  before_ += weight * (x.before() - before_);
  after_ += weight * (x.after() - after_);
  const double sum = std::abs(before_) + std::abs(after_);
  const double share = sum > 0 ? after_ / sum : 0;
  if (share > most_share) {
    damping_ *= 1 - fall / staleness_ * std::min(1.0, (share - most_share) / share_width);
    damping_ = std::max(damping_, most_ * least_damping_);
    ++overshoots_;
  } else {
    const double grows = rise + further_rise * std::clamp(-2 * share, 0.0, 1.0);
    damping_ = std::min(most_, damping_ * (1 + grows / staleness_));
  }
}

proto::Pacing async_pacing::now() const {
  proto::Pacing result;
  result.set_norm(norm_);
  result.set_staleness(staleness_);
  result.set_damping(damping_);
  result.set_overshoots(overshoots_);
  result.set_halvings(halvings_);
  return result;
}

proto::PacingState async_pacing::state() const {
  proto::PacingState result;
  *result.mutable_pacing() = now();
  result.set_workers(static_cast<std::uint32_t>(workers_));
  result.set_most_damping(most_);
  result.set_slope_before(before_);
  result.set_slope_after(after_);
  result.set_gradients(count_);
  result.set_first_loss(first_loss_);
  result.set_loss(loss_);
  result.set_least_loss(least_loss_);
  result.set_gradients_since_low(count_ - low_);
  return result;
}

bool async_pacing::restore(const proto::PacingState& x) {
  const auto& was = x.pacing();
  const auto is_factor = [](double value) { return value > 0 && value <= 1; };
  const std::array finite{was.norm(),     was.staleness(), x.slope_before(), x.slope_after(),
                          x.first_loss(), x.loss(),        x.least_loss()};
  if (!is_factor(was.damping()) || !is_factor(x.most_damping()) || was.norm() < 0
      || was.staleness() <= 0 || x.workers() == 0 || x.gradients_since_low() > x.gradients()
      || !std::ranges::all_of(finite, [](double value) { return std::isfinite(value); }))
    return false;
  norm_ = was.norm();
  overshoots_ = was.overshoots();
  halvings_ = was.halvings();
  most_ = x.most_damping();
  damping_ = was.damping();
  if (x.workers() == workers_)
    staleness_ = was.staleness();
  else if (damps_)
    damping_ *= first_damping(workers_) / first_damping(x.workers());
  damping_ = std::clamp(damping_, most_ * least_damping_, most_);
  before_ = x.slope_before();
  after_ = x.slope_after();
  count_ = x.gradients();
  first_loss_ = x.first_loss();
  loss_ = x.loss();
  least_loss_ = x.least_loss();
  low_ = count_ - x.gradients_since_low();
  return true;
}

} // namespace troupe
