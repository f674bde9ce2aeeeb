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

/// An update rule, with PyTorch's definitions (torch.optim 2.x). The gradient of a step is g =
/// clip(scale * gradient) + weight_decay * w + l1 * sign(w), r is the rate, and t = 1, 2, ... is
/// the step:
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
/// - adamw:    like adam, but weight decay is not part of g. It shrinks the weight itself:
///   (1 - r weight_decay) w replaces w  (Loshchilov and Hutter 2019)
/// - lamb:     like adam up to the direction d = m' / (1 - beta1^t) / (sqrt(s' / (1 - beta2^t)) +
///   epsilon) + weight_decay * w, where weight decay is not part of g;  w' = w - r trust d, trust =
///   ||w|| / ||d|| over the tensor, 1 if either is 0  (You et al. 2020)
///
/// clip(x) limits each element to the range -clip_value to clip_value if clip_value is set. sign(0)
/// = 0. All state starts at 0.
///
/// PyTorch has no LAMB. This one is algorithm 2 of the paper with phi(z) = z. Other implementations
/// differ. The authors' code does not correct the bias of the moments, and applies no weight decay
/// or trust ratio to biases and norms. NVIDIA's first divides by the global norm of the gradient.
/// timm's uses trust = 1 if weight_decay is 0. Here all tensors are treated alike, even those with
/// one element.
struct optimizer {
  optimizer_kind kind = optimizer_kind::sgd;
  /// For momentum, nesterov, and rmsprop (for which 0 means none).
  float momentum = 0.9F;
  float weight_decay = 0;
  /// For adam, adamw and lamb.
  double beta1 = 0.9;
  double beta2 = 0.999;
  /// For rmsprop.
  double smoothing = 0.99;
  /// For adagrad, rmsprop, adam, adamw and lamb.
  double epsilon = 1e-8;
  /// 0 means that elements of gradients are not clipped.
  double clip_value = 0;
  /// Penalty on the sum of absolute weights: its gradient is l1 * sign(w), also in adamw and lamb.
  double l1 = 0;
  /// 0 means that the gradient as a whole is not clipped. `update` sees only ranges, so the caller
  /// must compute the norm of the whole gradient and include clip_factor() in
  /// `update_arguments::scale`.
  double clip_norm = 0;

  /// The state that the rule keeps for each parameter, with PyTorch's names, such as "exp_avg". The
  /// state of a range of n parameters is slots() vectors of n elements, one after the other.
  std::span<const std::string_view> slot_names() const noexcept;
  std::size_t slots() const noexcept { return slot_names().size(); }
  /// The slot of the first moment (a running sum or mean of gradients). Nothing if the rule has
  /// none.
  std::optional<std::size_t> moment_slot() const noexcept;
  /// The factor that turns a slot's values after `from` updates into values after `to` updates. For
  /// the moments of adam, adamw and lamb, it is (1 - beta^to) / (1 - beta^from) if `from` is not 0:
  /// the moments with corrected bias stay the same. Otherwise it is 1.
  double recount(std::size_t slot, std::uint64_t from, std::uint64_t to) const noexcept;
  /// True if the range of an update must be exactly one tensor.
  bool by_tensor() const noexcept { return kind == optimizer_kind::lamb; }
  bool operator==(const optimizer&) const = default;
};

/// The factor on a gradient with this Euclidean norm that reduces its norm to at most clip_norm:
/// min(1, clip_norm / (norm + 1e-6)), as in torch.nn.utils.clip_grad_norm_. 1 if clip_norm is 0;
/// NaN if the norm is NaN.
double clip_factor(double clip_norm, double norm) noexcept;

/// Arguments of one update of a range of n parameters.
template <class T>
struct update_arguments {
  /// n elements.
  std::span<const T> weights;
  /// n elements: the gradient *summed* over samples.
  std::span<const T> gradient;
  /// Updated in place: slots() * n elements, slot after slot. If the slots are part of the state of
  /// a longer range, each slot begins `stride` elements after the previous one, and there are
  /// (slots() - 1) * stride + n elements.
  std::span<T> state;
  /// n elements: either the same memory as `weights` (in place), or memory that does not overlap
  /// it.
  std::span<T> updated;
  double rate = 0;
  /// Factor on the gradient: 1 / samples, times clip_factor().
  double scale = 1;
  /// Number of updates of this range, including this one; 1 for the first. For adam, adamw and
  /// lamb.
  std::uint64_t step = 1;
  /// 0 means n.
  std::size_t stride = 0;
  /// n elements, if the first moment is kept apart from the other state. `state` then holds only
  /// the other slots. If empty, the first moment is in its slot of `state`.
  std::span<T> moment = {};
  /// Number of updates of the moment, including this one; 0 means `step`.
  std::uint64_t moment_step = 0;
  /// If true, the step uses the moment that one more update with the same gradient would give:
  /// momentum v' + g instead of v' (nesterov always does this), and, with m' the new moment,
  /// (beta1 m' + (1 - beta1) g) / (1 - beta1^(t+1)) instead of m' / (1 - beta1^t). If each worker
  /// has its own moment, this compensates for the gradients of other workers that are applied in
  /// between (DANA; Hakimi et al. 2019, arXiv 1907.11612).
  bool look_ahead = false;
  /// n elements that are added to `gradient` first, or empty. Not for lamb.
  std::span<const T> addend = {};
  /// If not empty, the state before the update, laid out like `state`, which is then only written.
  std::span<const T> old_state = {};
  /// If not null: becomes false if an element of the gradient is not finite. Not for lamb.
  bool* finite = nullptr;
};

/// Makes one update in one pass (lamb: two). T: float, or double for reference tests. Throws
/// std::invalid_argument if sizes differ.
///
/// The result of an element depends only on that element's operands, not on its position or
/// alignment: updating a vector in slices gives the same bits as updating it at once. The exception
/// is lamb, which depends on all elements of the range. NaN and infinity propagate.
template <class T>
void update(const optimizer& rule, const update_arguments<T>& arguments);

/// Updates a state tensor (parameter_kind): updated = w + decay * (scale * sum - w), element by
/// element, computed in double. `updated` may be `weights`. All must have the same size; otherwise
/// it throws std::invalid_argument.
/// @param sum the statistic, summed over samples
/// @param scale 1 / samples
void update_statistics(std::span<const float> weights, std::span<const float> sum, double scale,
                       double decay, std::span<float> updated);

extern template void update<float>(const optimizer&, const update_arguments<float>&);
extern template void update<double>(const optimizer&, const update_arguments<double>&);

} // namespace troupe
