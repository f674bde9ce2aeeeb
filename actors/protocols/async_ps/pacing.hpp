#pragma once

#include "messages/proto/wire.pb.h"

#include <cstdint>

namespace troupe {

/// What a worker's gradient of that norm is multiplied with, so that it is not much larger than
/// those of all workers were of late: at most c e, with e the running norm, T the running staleness
/// and c = 1 + 8 / T^2. 1 before anything is known.
///
/// The running norm grows by at most 2 % of what exceeds it per gradient, and falls freely:
/// gradients that explode cannot drag it up.
/// @param norm of the gradient's mean over its samples
double limit_factor(double norm, const proto::Pacing& known) noexcept;

/// What shard 0 of an asynchronous protocol learns from all gradients: their norm, their staleness,
/// and whether the loss grows. Plain state; nobody waits for it.
///
/// The guard: while a running mean of the loss stays above its least value by 0.3 times the first
/// loss for 4 T gradients in a row, the rate is halved. Limit and guard have no paper.
class async_pacing {
public:
  /// `workers` that push; `guarded`: the guard may act.
  async_pacing(std::size_t workers, bool guarded);

  /// A gradient was applied.
  /// @param norm of its mean over the samples, after it was limited
  /// @param staleness updates between reading the weights and this one
  /// @param loss mean over its samples
  void applied(double norm, std::uint64_t staleness, double loss) noexcept;

  proto::Pacing now() const;

  /// How often the rate was halved.
  std::uint64_t halvings() const noexcept { return halvings_; }

private:
  void guard(double loss) noexcept;

  bool guarded_;
  double norm_ = 0;
  double staleness_;
  double damping_ = 1;
  std::uint64_t halvings_ = 0;
  /// Of the loss: the first one, a running mean, and the least that it was.
  double first_loss_ = 0;
  double loss_ = 0;
  double least_loss_ = 0;
  std::uint64_t count_ = 0;
  /// When the running mean was low last, or the rate was halved.
  std::uint64_t low_ = 0;
};

} // namespace troupe
