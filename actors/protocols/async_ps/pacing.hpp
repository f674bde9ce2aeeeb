#pragma once

#include "messages/proto/wire.pb.h"

#include <cstddef>
#include <cstdint>

namespace troupe {

/// The factor on a worker's gradient with this norm. It limits the norm to c e, so that the
/// gradient is not much larger than recent gradients of all workers. Here e is the running norm, T
/// the running staleness, and c = 1 + 8 / T^2. Before the first statistics, the factor is 1.
///
/// When a norm exceeds the running norm, the running norm grows by at most 2 % of the difference.
/// There is no such limit when it falls. Exploding gradients therefore cannot pull the running norm
/// up.
/// @param norm norm of the mean gradient over its samples
double limit_factor(double norm, const proto::Pacing& known) noexcept;

/// The statistics that shard 0 of an asynchronous protocol collects from all gradients: their norm,
/// their staleness, whether updates overshoot, and whether the loss grows. This is a plain object,
/// not an actor. No task waits for it.
///
/// The rate is damped while updates overshoot. Between two gradients of a worker, the weights move
/// along a path, mostly through updates by other workers. If the gradient at the end of the path
/// points back, these updates went past the minimum along the path. Because updates are stale, the
/// next ones would overshoot again, and farther. Let
///
/// - W be the number of workers, and T the running mean of 1 + the staleness;
/// - b be the slope at the beginning of the path, and a at its end (proto::Slopes: running means
///   over a fifth of a round, but at least 3 gradients);
/// - share = a / (|a| + |b|). It is about 0 if the weights stop at the minimum along the path, 1/2
///   if they move twice as far, and -1/2 if the slope does not change at all.
///
/// The damping is a factor on the job's rate; 1 is none. If the share is above 0.6, the rate falls
/// by at most the fraction 0.8 / T of itself per gradient. Otherwise the rate rises, but not above
/// the job's rate. It rises by the fraction 0.05 / T per gradient if the share is at least 0, and
/// by up to 0.15 / T if the share is negative. The rate starts at W^-0.5 of the job's rate. Only
/// the guard (see below) lowers it below 1 / W of the job's rate. At 1 / W, all gradients of a
/// round together move the weights about as far as one gradient would at the job's rate.
///
/// A guard handles rates that are too high even for one worker. It acts if the running mean of the
/// loss exceeds its minimum by more than half of the first loss, for more than 4 T gradients in a
/// row. It then halves the factor on the rate, and the factor's upper limit.
///
/// The limit on norms (limit_factor), the damping and the guard are not from a paper.
/// Hypergradients (Baydin et al. 2018, arXiv 1703.04782) use the sign of the same product.
class async_pacing {
public:
  /// `workers`: number of workers that push. `damps`: whether the rate is damped.
  async_pacing(std::size_t workers, bool damps);

  /// The factor on the rate before the first statistics.
  static double first_damping(std::size_t workers) noexcept;

  /// Records that a gradient was applied.
  /// @param norm norm of the mean gradient, after it was limited
  /// @param staleness number of updates between reading the weights and this update
  /// @param loss mean loss over the gradient's samples
  void applied(double norm, std::uint64_t staleness, double loss) noexcept;

  /// Takes the slopes that a worker measured. A worker's first gradient has none.
  void moved(const proto::Slopes& x) noexcept;

  proto::Pacing now() const;

  /// The state, for a checkpoint.
  proto::PacingState state() const;

  /// Continues from the state of a checkpoint; call it before training. If the number of workers
  /// differs, the running staleness starts again, and the damping changes in proportion to
  /// first_damping().
  /// @return false if a value is not finite or out of its bounds; nothing changes then
  bool restore(const proto::PacingState& x);

  double damping() const noexcept { return damping_; }
  /// Takes a value above 0 and at most 1.
  void set_damping(double x) noexcept { damping_ = x; }
  /// Number of gradients applied so far.
  std::uint64_t gradients() const noexcept { return count_; }

private:
  void guard(double loss) noexcept;

  std::size_t workers_;
  bool damps_;
  double least_damping_;
  double norm_ = 0;
  double staleness_;
  double damping_;
  /// The upper limit of the damping.
  double most_ = 1;
  /// How often overshooting lowered the damping.
  std::uint64_t overshoots_ = 0;
  /// How often the guard halved the damping.
  std::uint64_t halvings_ = 0;
  std::uint64_t count_ = 0;
  /// Running means of the slopes.
  double before_ = 0;
  double after_ = 0;
  /// The first loss, the running mean of the loss, and the minimum of this mean.
  double first_loss_ = 0;
  double loss_ = 0;
  double least_loss_ = 0;
  /// The number of the newest gradient at which the running mean of the loss was low or the guard
  /// acted.
  std::uint64_t low_ = 0;
};

} // namespace troupe
