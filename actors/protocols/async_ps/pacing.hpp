#pragma once

#include "messages/proto/wire.pb.h"

#include <cstddef>
#include <cstdint>

namespace troupe {

/// The factor by which a worker scales a gradient with this norm, so that the gradient is not much
/// larger than recent gradients of all workers. It limits the norm to c e, with c = 1 + 8 / T^2.
/// Here e is the running mean of the norm, and T the running mean of 1 + the staleness. Before the
/// first statistics, the factor is 1.
///
/// The running mean of the norm is a mean over limited gradients, each with a weight of 2 %. A
/// gradient that explodes can therefore raise it only a little.
/// @param norm norm of the mean gradient over its samples
double limit_factor(double norm, const proto::Pacing& known) noexcept;

/// Lowers the learning rate of an asynchronous protocol while updates overshoot or the loss grows.
/// Shard 0 collects the statistics for this from all gradients: norm, staleness, slopes and loss.
/// This is a plain object, not an actor. No task waits for it.
///
/// Between two gradients of a worker, the weights move along a path, mostly through updates by
/// other workers. If the gradient at the end of the path points back, these updates went past the
/// minimum along the path (they overshot). Because updates are stale, the next updates would
/// overshoot again, and farther. Let
///
/// - W be the number of workers, and T the running mean of 1 + the staleness;
/// - b be the slope at the beginning of the path, and a the slope at its end (proto::Slopes). Both
///   are running means over a fifth of a round (one gradient of each worker), but at least 3
///   gradients;
/// - share = a / (|a| + |b|). It is about 0 if the weights stop at the minimum along the path, 1/2
///   if they move twice as far, and -1/2 if the slope does not change at all.
///
/// The damping is a factor on the job's learning rate; 1 means no damping. If the share is above
/// 0.6, the rate falls by at most the fraction 0.8 / T of itself per gradient. Otherwise the rate
/// rises, but not above the job's rate. It rises by the fraction 0.05 / T per gradient if the share
/// is at least 0, and by up to 0.15 / T if the share is negative. The rate starts at W^-0.5 of the
/// job's rate. Only the guard (see below) can lower it below 1 / W of the job's rate. At 1 / W, all
/// gradients of a round together move the weights about as far as one gradient would at the job's
/// rate.
///
/// A guard handles a learning rate that is too high even for one worker. The guard acts if the
/// running mean of the loss exceeds its minimum by more than half of the first loss, for more than
/// 4 T gradients in a row. It then halves the damping and the damping's upper limit.
///
/// The limit on norms (limit_factor), the damping and the guard are not from a paper.
/// Hypergradients (Baydin et al. 2018, arXiv 1703.04782) use the sign of the same product.
class async_pacing {
public:
  /// `workers`: the number W of workers that push. `damps`: true if the rate is damped.
  async_pacing(std::size_t workers, bool damps);

  /// The damping before the first statistics: W^-0.5.
  static double first_damping(std::size_t workers) noexcept;

  /// Records that a gradient was applied.
  /// @param norm norm of the mean gradient, after it was limited
  /// @param staleness number of updates between the pull of the weights and the update with this
  /// gradient
  /// @param loss mean loss over the gradient's samples
  void applied(double norm, std::uint64_t staleness, double loss) noexcept;

  /// Takes the slopes that a worker measured. A worker's first gradient has no slopes.
  void moved(const proto::Slopes& x) noexcept;

  proto::Pacing now() const;

  /// The state, for a checkpoint.
  proto::PacingState state() const;

  /// Continues from the state of a checkpoint. Called before training. If the number of workers has
  /// changed, the running mean of the staleness starts again, and the damping changes in proportion
  /// to first_damping().
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
  /// How many gradients lowered the damping because the weights overshot.
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
  /// The number of a gradient: the newest one after which the running mean of the loss was not too
  /// high for the guard, or after which the guard acted.
  std::uint64_t low_ = 0;
};

} // namespace troupe
