#pragma once

#include "messages/proto/wire.pb.h"

#include <cstddef>
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
/// whether updates overshoot, and whether the loss grows. Plain state; no task waits for it.
///
/// The rate is damped while updates overshoot. Between two gradients of a worker, the weights move
/// along a path. Most of the path consists of updates by other workers. If the gradient at the end
/// of the path points back, the updates of this round went past the minimum along the path. As
/// updates are stale, the next round will overshoot again, and farther. Let a be the slope at the
/// end of the path and b the slope at its beginning (proto::Slopes, running means over a fifth of a
/// round, at least 3 gradients). The share a / (|a| + |b|) is about 0 if the weights stop at the
/// minimum along the path, 1/2 if they move twice as far, and -1/2 if the slope did not change at
/// all. If the share is above 0.6, the rate falls, by at most 0.8 / T per gradient. Otherwise the
/// rate rises, up to the job's rate: by 0.05 / T per gradient if the share is at least 0, and by up
/// to 0.15 / T if it is negative. The rate starts at W^-0.5 of the job's rate and is at least 1 / W
/// of it, unless the guard lowers it. At 1 / W, all gradients of a round together move the weights
/// about as far as one gradient would at the job's rate. T is the running mean of the staleness, W
/// the number of workers.
///
/// A guard handles rates that are too high even for one worker. If a running mean of the loss
/// exceeds its minimum by more than half of the first loss, for more than 4 T gradients in a row,
/// the guard halves the damping and its upper limit.
///
/// Limit, damping and guard are not from a paper. Hypergradients (Baydin et al. 2018, arXiv
/// 1703.04782) use the sign of the same product.
class async_pacing {
public:
  /// `workers` that push; `damps`: the rate is damped.
  async_pacing(std::size_t workers, bool damps);

  /// The factor of the rate before anything is known.
  static double first_damping(std::size_t workers) noexcept;

  /// A gradient was applied.
  /// @param norm of its mean over the samples, after it was limited
  /// @param staleness number of updates between reading the weights and this update
  /// @param loss mean over its samples
  void applied(double norm, std::uint64_t staleness, double loss) noexcept;

  /// The slopes that its worker saw, unless it was the worker's first gradient.
  void moved(const proto::Slopes& x) noexcept;

  proto::Pacing now() const;

  /// For a checkpoint.
  proto::PacingState state() const;

  /// Before training: goes on from such a state. For another number of workers, the running
  /// staleness begins anew, and the damping changes as first_damping() does.
  /// @return false, and nothing is changed, if its values are not finite or out of their bounds
  bool restore(const proto::PacingState& x);

  double damping() const noexcept { return damping_; }
  /// Above 0, at most 1.
  void set_damping(double x) noexcept { damping_ = x; }
  /// Applied so far.
  std::uint64_t gradients() const noexcept { return count_; }

private:
  void guard(double loss) noexcept;

  std::size_t workers_;
  bool damps_;
  double least_damping_;
  double norm_ = 0;
  double staleness_;
  double damping_;
  /// What the damping may rise to.
  double most_ = 1;
  /// How often slopes lowered the damping, and the guard.
  std::uint64_t overshoots_ = 0;
  std::uint64_t halvings_ = 0;
  std::uint64_t count_ = 0;
  /// Running means of the slopes.
  double before_ = 0;
  double after_ = 0;
  /// Of the loss: the first one, a running mean, and the least that it was.
  double first_loss_ = 0;
  double loss_ = 0;
  double least_loss_ = 0;
  /// When the running mean was low last, or the guard acted.
  std::uint64_t low_ = 0;
};

} // namespace troupe
