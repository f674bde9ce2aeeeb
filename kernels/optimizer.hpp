#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace troupe {

enum class optimizer_kind : std::uint8_t {
  sgd,
  momentum,
  nesterov,
  adagrad,
  rmsprop,
  adam,
  adamw,
};

/// An update rule, by PyTorch's definitions (torch.optim 2.x). With the gradient of a step
/// g = clip(scale * gradient) + weight_decay * w, the rate r, and t = 1, 2, ... the step:
///
/// - sgd:      w' = w - r g
/// - momentum: v' = momentum v + g,  w' = w - r v'  (SGD with momentum, dampening 0)
/// - nesterov: v' = momentum v + g,  w' = w - r (g + momentum v')
/// - adagrad:  s' = s + g^2,  w' = w - r g / (sqrt(s') + epsilon)
///   (Duchi, Hazan and Singer 2011)
/// - rmsprop:  s' = smoothing s + (1 - smoothing) g^2,  d = g / (sqrt(s') + epsilon),
///   w' = w - r d, or with momentum > 0: v' = momentum v + d,  w' = w - r v'
///   (Tieleman and Hinton 2012)
/// - adam:     m' = beta1 m + (1 - beta1) g,  s' = beta2 s + (1 - beta2) g^2,
///   w' = w - r / (1 - beta1^t) m' / (sqrt(s' / (1 - beta2^t)) + epsilon)  (Kingma and Ba 2015)
/// - adamw:    as adam, where weight decay is not part of g but shrinks the weight itself:
///   (1 - r weight_decay) w stands in place of w  (Loshchilov and Hutter 2019)
///
/// clip(x) cuts each element at -clip_value and clip_value, where that is set. All state starts at
/// 0.
struct optimizer {
  optimizer_kind kind = optimizer_kind::sgd;
  /// momentum, nesterov, and rmsprop (where 0 means none).
  float momentum = 0.9F;
  float weight_decay = 0;
  /// adam, adamw.
  double beta1 = 0.9;
  double beta2 = 0.999;
  /// rmsprop.
  double smoothing = 0.99;
  /// adagrad, rmsprop, adam, adamw.
  double epsilon = 1e-8;
  /// 0: gradients are not clipped.
  double clip_value = 0;

  /// The state that the rule keeps for each parameter, by PyTorch's names, such as "exp_avg". The
  /// state of a range of n parameters is slots() vectors of n elements, one after another.
  std::span<const std::string_view> slot_names() const noexcept;
  std::size_t slots() const noexcept { return slot_names().size(); }
  bool operator==(const optimizer&) const = default;
};

/// Arguments of one update of a range of n parameters.
template <class T>
struct update_arguments {
  /// n elements.
  std::span<const T> weights;
  /// n elements: the gradient *summed* over samples.
  std::span<const T> gradient;
  /// slots() * n elements, slot after slot, updated in place.
  std::span<T> state;
  /// n elements; either the same memory as `weights` (in place) or apart from it.
  std::span<T> updated;
  double rate = 0;
  /// Factor of the gradient: 1 / samples.
  double scale = 1;
  /// Updates made of this range, this one included: from 1. For adam and adamw.
  std::uint64_t step = 1;
};

/// One update in one pass. T: float, or double for reference tests. Throws std::invalid_argument
/// when sizes differ.
///
/// An element's result depends on that element's operands alone, not on its position or on
/// alignment: updating a vector in slices gives the same bits as updating it at once. NaN and
/// infinity propagate.
template <class T>
void update(const optimizer& rule, const update_arguments<T>& arguments);

extern template void update<float>(const optimizer&, const update_arguments<float>&);
extern template void update<double>(const optimizer&, const update_arguments<double>&);

} // namespace troupe
