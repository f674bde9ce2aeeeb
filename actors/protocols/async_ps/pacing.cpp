#include "actors/protocols/async_ps/pacing.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// How fast running means follow, per gradient.
constexpr double follow = 0.02;

/// Of the first loss: how far the loss may grow, and for how many times T gradients.
constexpr double guard_margin = 0.3;
constexpr double guard_patience = 4;

} // namespace

double limit_factor(double norm, const proto::Pacing& known) noexcept {
  if (!(known.norm() > 0) || !(known.staleness() > 0))
    return 1;
  const double most = (1 + 8 / (known.staleness() * known.staleness())) * known.norm();
  return norm > most ? most / norm : 1;
}

async_pacing::async_pacing(std::size_t workers, bool guarded)
  : guarded_(guarded), staleness_(static_cast<double>(workers)) {}

void async_pacing::applied(double norm, std::uint64_t staleness, double loss) noexcept {
  staleness_ += follow * (1 + static_cast<double>(staleness) - staleness_);
  norm_ = count_ == 0 ? norm : norm_ + follow * (norm - norm_);
  ++count_;
  if (guarded_)
    guard(loss);
}

void async_pacing::guard(double loss) noexcept {
  if (count_ == 1)
    first_loss_ = loss_ = least_loss_ = loss;
  loss_ += (loss - loss_) / std::min(static_cast<double>(count_), staleness_ + 10);
  least_loss_ = std::min(least_loss_, loss_);
  if (loss_ <= least_loss_ + guard_margin * first_loss_)
    low_ = count_;
  if (static_cast<double>(count_ - low_) > guard_patience * staleness_) {
    damping_ /= 2;
    ++halvings_;
    low_ = count_;
  }
}

proto::Pacing async_pacing::now() const {
  proto::Pacing result;
  result.set_norm(norm_);
  result.set_staleness(staleness_);
  result.set_damping(damping_);
  return result;
}

} // namespace troupe
