#pragma once

#include "kernels/host_device.hpp"
#include "kernels/optimizers/optimizer.hpp"

#include <cmath>
#include <limits>

// The update of one element, for the CPU and for CUDA kernels. The comment of `optimizer` lists the
// formulas. Internal to kernels/.
//
// Multiply-adds are fused explicitly with std::fma. (The compiler option -ffp-contract=off keeps
// the compiler from fusing others.) So vectorized code and the scalar code for the last elements of
// a range round in the same way. The results do not depend on where a range begins or ends.

namespace troupe {

/// The scalars of an update, in the type of the elements. A scalar that the rule does not use has a
/// value that changes nothing, such as a factor of 1.
template <class T>
struct update_factors {
  T rate;
  T scale;
  /// Limit for the elements of the gradient. Infinity if they are not clipped.
  T clip;
  /// Weight decay as part of the gradient: the factor of the weight in g. 0 for adamw and lamb.
  T decay;
  /// adamw: the factor by which the weight is multiplied, 1 - r weight_decay. Other rules: 1.
  T shrink;
  T momentum;
  T epsilon;
  /// The factors of the old moment (keep) and of the new term (take), for the first moment (1) and
  /// the second moment (2).
  T keep1, take1;
  T keep2, take2;
  /// Corrects the bias of the second moment of adam, adamw and lamb: 1 / sqrt(1 - beta2^t).
  T root_scale;
  /// For lamb. mean_scale corrects the bias of the first moment: 1 / (1 - beta1^t). direction_decay
  /// is the factor of the weight in the direction d.
  T mean_scale;
  T direction_decay;
  bool look_ahead;
};

inline bool uses_moments(optimizer_kind kind) {
  return kind == optimizer_kind::adam || kind == optimizer_kind::adamw
    || kind == optimizer_kind::lamb;
}

template <class T>
update_factors<T> update_factors_of(const optimizer& rule, const update_arguments<T>& arguments) {
  const bool adam = uses_moments(rule.kind);
  const bool lamb = rule.kind == optimizer_kind::lamb;
  const bool shrinks = rule.kind == optimizer_kind::adamw;
  const auto t = static_cast<double>(arguments.step);
  const auto own = arguments.moment_step > 0 ? static_cast<double>(arguments.moment_step) : t;
  const double first = adam ? 1 - std::pow(rule.beta1, own + (arguments.look_ahead ? 1 : 0)) : 1;
  const double second = adam ? 1 - std::pow(rule.beta2, t) : 1;
  const double keep2 = adam ? rule.beta2 : rule.smoothing;
  const double clip =
    rule.clip_value > 0 ? rule.clip_value : std::numeric_limits<double>::infinity();
  const double decay = rule.weight_decay;
  const auto cast = [](double x) { return static_cast<T>(x); };
  return {
    .rate = cast(lamb ? arguments.rate : arguments.rate / first),
    .scale = cast(arguments.scale),
    .clip = cast(clip),
    .decay = cast(shrinks || lamb ? 0 : decay),
    .shrink = cast(shrinks ? 1 - arguments.rate * decay : 1),
    .momentum = cast(rule.momentum),
    .epsilon = cast(rule.epsilon),
    .keep1 = cast(rule.beta1),
    .take1 = cast(1 - rule.beta1),
    .keep2 = cast(keep2),
    .take2 = cast(1 - keep2),
    .root_scale = cast(1 / std::sqrt(second)),
    .mean_scale = cast(1 / first),
    .direction_decay = cast(lamb ? decay : 0),
    .look_ahead = arguments.look_ahead,
  };
}

// The scaled and clipped gradient, plus weight decay. A NaN stays NaN, because both comparisons are
// then false.
template <class T>
TROUPE_HOST_DEVICE T decayed_gradient(const update_factors<T>& f, T gradient, T weight) {
  const T scaled = f.scale * gradient;
  const T low = scaled < -f.clip ? -f.clip : scaled;
  const T clipped = low > f.clip ? f.clip : low;
  return std::fma(f.decay, weight, clipped);
}

/// The complete gradient of a step: decayed_gradient() plus the l1 penalty on absolute weights.
template <class T>
TROUPE_HOST_DEVICE T penalized_gradient(const update_factors<T>& f, T l1, T gradient, T weight) {
  const T sign = static_cast<T>(weight > 0) - static_cast<T>(weight < 0);
  return std::fma(l1, sign, decayed_gradient(f, gradient, weight));
}

/// Factors for gradients to which penalized_gradient() was already applied: they are not scaled,
/// clipped or decayed again.
template <class T>
update_factors<T> for_whole_gradients(update_factors<T> f) {
  f.scale = 1;
  f.clip = std::numeric_limits<T>::infinity();
  f.decay = 0;
  return f;
}

// -- the new state, from the complete gradient of a step

template <class T>
TROUPE_HOST_DEVICE T next_velocity(const update_factors<T>& f, T velocity, T gradient) {
  return std::fma(f.momentum, velocity, gradient);
}

template <class T>
TROUPE_HOST_DEVICE T next_sum_of_squares(T sum, T gradient) {
  return std::fma(gradient, gradient, sum);
}

template <class T>
TROUPE_HOST_DEVICE T next_mean_square(const update_factors<T>& f, T mean, T gradient) {
  return std::fma(f.keep2, mean, f.take2 * gradient * gradient);
}

template <class T>
TROUPE_HOST_DEVICE T next_mean(const update_factors<T>& f, T mean, T gradient) {
  return std::fma(f.keep1, mean, f.take1 * gradient);
}

// -- directions: the change of the weight before it is multiplied by the rate

/// The direction of adagrad and rmsprop.
template <class T>
TROUPE_HOST_DEVICE T normalized_gradient(const update_factors<T>& f, T gradient, T square) {
  return gradient / (std::sqrt(square) + f.epsilon);
}

/// The direction of adam and adamw. update_factors::rate already includes the correction of the
/// first moment's bias.
template <class T>
TROUPE_HOST_DEVICE T moments_direction(const update_factors<T>& f, T mean, T square) {
  return mean / std::fma(std::sqrt(square), f.root_scale, f.epsilon);
}

template <class T>
TROUPE_HOST_DEVICE T lamb_direction(const update_factors<T>& f, T weight, T mean, T square) {
  const T step = f.mean_scale * mean / std::fma(std::sqrt(square), f.root_scale, f.epsilon);
  return std::fma(f.direction_decay, weight, step);
}

} // namespace troupe
