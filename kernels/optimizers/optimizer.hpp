#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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
  lamb,
};

/// An update rule, by PyTorch's definitions (torch.optim 2.x). With the gradient of a step
/// g = clip(scale * gradient) + weight_decay * w + l1 * sign(w), the rate r, and t = 1, 2, ... the
/// step:
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
/// - lamb:     as adam up to the direction d = m' / (1 - beta1^t) / (sqrt(s' / (1 - beta2^t)) +
///   epsilon) + weight_decay * w, where weight decay is not part of g;  w' = w - r trust d, trust =
///   ||w|| / ||d|| over the tensor, 1 where either is 0  (You et al. 2020)
///
/// clip(x) limits each element to the range -clip_value to clip_value, if clip_value is set.
/// sign(0) = 0. All state starts at 0.
///
/// PyTorch has no LAMB. This one is algorithm 2 of the paper with phi(z) = z. Other implementations
/// differ. The authors' code does not correct the bias of the moments, and applies no weight decay
/// or trust ratio to biases and norms. NVIDIA's first divides by the global norm of the gradient.
/// timm's uses trust = 1 if weight_decay is 0. Here all tensors are treated alike, even those with
/// one element.
struct optimizer {
  optimizer_kind kind = optimizer_kind::sgd;
  /// momentum, nesterov, and rmsprop (where 0 means none).
  float momentum = 0.9F;
  float weight_decay = 0;
  /// adam, adamw, lamb.
  double beta1 = 0.9;
  double beta2 = 0.999;
  /// rmsprop.
  double smoothing = 0.99;
  /// adagrad, rmsprop, adam, adamw, lamb.
  double epsilon = 1e-8;
  /// 0: elements of gradients are not clipped.
  double clip_value = 0;
  /// Penalty on the sum of absolute weights: its gradient is l1 * sign(w), in adamw and lamb, too.
  double l1 = 0;
  /// 0: the gradient as a whole is not clipped. `update` sees ranges, so the caller that has the
  /// norm of all of it passes clip_factor() on, within `update_arguments::scale`.
  double clip_norm = 0;

  /// The state that the rule keeps for each parameter, by PyTorch's names, such as "exp_avg". The
  /// state of a range of n parameters is slots() vectors of n elements, one after another.
  std::span<const std::string_view> slot_names() const noexcept;
  std::size_t slots() const noexcept { return slot_names().size(); }
  /// The slot of the first moment (a running sum or mean of gradients); none for rules without.
  std::optional<std::size_t> moment_slot() const noexcept;
  /// The range of an update must be one tensor.
  bool by_tensor() const noexcept { return kind == optimizer_kind::lamb; }
  bool operator==(const optimizer&) const = default;
};

/// What a gradient of that Euclidean norm is multiplied with, so that its norm is at most
/// clip_norm: min(1, clip_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ does. 1 where
/// clip_norm is 0; NaN for a norm that is NaN.
double clip_factor(double clip_norm, double norm) noexcept;

/// Arguments of one update of a range of n parameters.
template <class T>
struct update_arguments {
  /// n elements.
  std::span<const T> weights;
  /// n elements: the gradient *summed* over samples.
  std::span<const T> gradient;
  /// Updated in place: slots() * n elements, slot after slot. If the slots are cut out of the state
  /// of a longer range, each slot begins `stride` elements after the one before, and there are
  /// (slots() - 1) * stride + n elements.
  std::span<T> state;
  /// n elements; either the same memory as `weights` (in place) or apart from it.
  std::span<T> updated;
  double rate = 0;
  /// Factor of the gradient: 1 / samples, times clip_factor().
  double scale = 1;
  /// Number of updates of this range, including this one: 1 at first. For adam, adamw and lamb.
  std::uint64_t step = 1;
  /// 0: n.
  std::size_t stride = 0;
  /// n elements, if the first moment is kept apart from the other state: `state` then holds only
  /// the other slots. If empty, the first moment is in its slot of `state`.
  std::span<T> moment = {};
  /// Number of updates of the moment, including this one; 0 means `step`.
  std::uint64_t moment_step = 0;
  /// The step goes as far as the moment will carry the weights with the next gradient, too: with m'
  /// the new moment, momentum v' + g stands in place of v' (nesterov always does so), and (beta1 m'
  /// + (1 - beta1) g) / (1 - beta1^(t+1)) in place of m' / (1 - beta1^t). If each worker has its
  /// own moment, this compensates for the gradients of other workers that are applied meanwhile
  /// (DANA; Hakimi et al. 2019, arXiv 1907.11612).
  bool look_ahead = false;
};

/// One update in one pass (lamb: two). T: float, or double for reference tests. Throws
/// std::invalid_argument when sizes differ.
///
/// An element's result depends on that element's operands alone, not on its position or on
/// alignment: updating a vector in slices gives the same bits as updating it at once. Except for
/// lamb, where it depends on all elements of the range. NaN and infinity propagate.
template <class T>
void update(const optimizer& rule, const update_arguments<T>& arguments);

/// The update of a state tensor (parameter_kind): updated = w + decay * (scale * sum - w), element
/// by element, computed in double. `updated` may be `weights`; all have one size, else
/// std::invalid_argument.
/// @param sum the statistic, summed over samples
/// @param scale 1 / samples
void update_statistics(std::span<const float> weights, std::span<const float> sum, double scale,
                       double decay, std::span<float> updated);

extern template void update<float>(const optimizer&, const update_arguments<float>&);
extern template void update<double>(const optimizer&, const update_arguments<double>&);

} // namespace troupe
