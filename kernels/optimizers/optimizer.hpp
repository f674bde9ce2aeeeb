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

/// An update rule, with PyTorch's definitions (torch.optim 2.x). In the formulas, w is a weight, w'
/// the new weight, r the learning rate, and t = 1, 2, ... the number of the update. g is the
/// complete gradient: g = clip(scale * gradient) + weight_decay * w + l1 * sign(w).
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
/// - lamb:     m' and s' like adam, but weight decay is not part of g. The direction is
///   d = m' / (1 - beta1^t) / (sqrt(s' / (1 - beta2^t)) + epsilon) + weight_decay w,
///   w' = w - r trust d  with  trust = ||w|| / ||d|| over the tensor; 1 if ||w|| or ||d|| is 0
///   (You et al. 2020)
///
/// If clip_value is set, clip(x) limits each element to the range -clip_value to clip_value.
/// Otherwise, clip(x) = x. sign(0) = 0. All state starts at 0.
///
/// With `lazy`, an element whose gradient is 0 keeps its weight and its state. All other elements
/// are updated as above, with the same t. PyTorch's SparseAdam and MXNet's lazy_update do the same
/// with rows of a table: they leave out a row that a batch does not read.
///
/// PyTorch has no LAMB. The rule here is algorithm 2 of the paper with phi(z) = z. It treats all
/// tensors in the same way, even tensors with one element. Other implementations differ: The
/// authors' code does not correct the bias of the moments, and applies no weight decay or trust
/// ratio to biases and norms. NVIDIA's code first divides by the global norm of the gradient. timm
/// uses trust = 1 if weight_decay is 0.
struct optimizer {
  optimizer_kind kind = optimizer_kind::sgd;
  /// For momentum and nesterov. Also for rmsprop, where 0 means no momentum.
  float momentum = 0.9F;
  float weight_decay = 0;
  /// For adam, adamw and lamb.
  double beta1 = 0.9;
  double beta2 = 0.999;
  /// For rmsprop.
  double smoothing = 0.99;
  /// For adagrad, rmsprop, adam, adamw and lamb.
  double epsilon = 1e-8;
  /// Limit for each element of the gradient. 0 means no limit.
  double clip_value = 0;
  /// Penalty on the sum of the absolute weights: adds l1 * sign(w) to the gradient. This is also so
  /// for adamw and lamb, although their weight decay is not added to the gradient.
  double l1 = 0;
  /// Limit for the norm of the whole gradient. 0 means no limit. `update` gets only ranges of the
  /// gradient, so it cannot apply this limit. The caller must compute the norm of the whole
  /// gradient and include clip_factor() in `update_arguments::scale`.
  double clip_norm = 0;
  /// True: an element whose gradient is 0 keeps its weight and its state. Not for lamb.
  bool lazy = false;

  /// The names of the rule's state vectors, called slots. They are PyTorch's names, such as
  /// "exp_avg". For a range of n parameters, the state consists of slots() vectors of n elements,
  /// one after the other.
  std::span<const std::string_view> slot_names() const noexcept;
  std::size_t slots() const noexcept { return slot_names().size(); }
  /// The slot of the first moment, which is a running sum or mean of gradients. Empty if the rule
  /// has no first moment.
  std::optional<std::size_t> moment_slot() const noexcept;
  /// Returns the factor by which a slot must be multiplied if the number of updates is changed from
  /// `from` to `to`. For the moments of adam, adamw and lamb, the factor is (1 - beta^to) / (1 -
  /// beta^from), so the moments with corrected bias stay the same. For all other slots, and if
  /// `from` is 0, the factor is 1.
  double recount(std::size_t slot, std::uint64_t from, std::uint64_t to) const noexcept;
  /// True if an element whose gradient is 0 keeps its weight and its state, so that updates may
  /// leave out such elements.
  bool keeps_zero_gradients() const noexcept {
    return lazy
      || ((kind == optimizer_kind::sgd || (kind == optimizer_kind::adagrad && epsilon > 0))
          && weight_decay == 0 && l1 == 0);
  }
  /// True if each update must have the range of exactly one tensor.
  bool by_tensor() const noexcept { return kind == optimizer_kind::lamb; }
  bool operator==(const optimizer&) const = default;
};

/// Returns the factor that limits a gradient with the Euclidean norm `norm` to clip_norm: min(1,
/// clip_norm / (norm + 1e-6)), as in torch.nn.utils.clip_grad_norm_. If clip_norm is 0, there is no
/// limit, and the factor is 1. Otherwise, the factor is NaN if the norm is NaN.
double clip_factor(double clip_norm, double norm) noexcept;

/// Arguments of one update of a range of n parameters.
template <class T>
struct update_arguments {
  /// n elements: the weights before the update.
  std::span<const T> weights;
  /// n elements: the gradient, *summed* over the samples.
  std::span<const T> gradient;
  /// The state: slots() * n elements, slot after slot. Updated in place. The slots may be part of
  /// the state of a longer range. Then each slot begins `stride` elements after the previous one,
  /// and the span has (slots() - 1) * stride + n elements.
  std::span<T> state;
  /// n elements: receives the new weights. Either the same memory as `weights`, or memory that does
  /// not overlap `weights`.
  std::span<T> updated;
  double rate = 0;
  /// The factor of the gradient: 1 / samples, times clip_factor().
  double scale = 1;
  /// Number of updates of this range, including this update; 1 for the first update. Used only by
  /// adam, adamw and lamb.
  std::uint64_t step = 1;
  /// Distance between the beginnings of two slots in `state`. 0 means n.
  std::size_t stride = 0;
  /// The first moment (n elements), if it is not in `state`. Then `state` holds only the other
  /// slots. If `moment` is empty, the first moment is in its slot of `state`.
  std::span<T> moment = {};
  /// Number of updates of the first moment, including this update. 0 means `step`.
  std::uint64_t moment_step = 0;
  /// If true, the new weights are not computed from the new moment, but from the moment that one
  /// more update with the same gradient would give. For momentum, this is momentum v' + g instead
  /// of v'. (nesterov always does this.) For rmsprop with momentum, it is momentum v' + d instead
  /// of v'. For adam, adamw and lamb, it is (beta1 m' + (1 - beta1) g) / (1 - beta1^(t+1)) instead
  /// of m' / (1 - beta1^t).
  ///
  /// Used if each worker has its own moment. It compensates for the gradients of other workers,
  /// which are applied between two gradients of the same worker (DANA; Hakimi et al. 2019, arXiv
  /// 1907.11612).
  bool look_ahead = false;
  /// A second gradient (n elements), or empty. If it is not empty, the update uses gradient +
  /// addend. Not for lamb.
  std::span<const T> addend = {};
  /// The state before the update, in the same layout as `state`, or empty. If it is not empty, the
  /// update only writes `state`, and does not read it.
  std::span<const T> old_state = {};
  /// Null, or a flag that the update sets to false if an element of the gradient is not finite. The
  /// update never sets the flag to true. Not for lamb.
  bool* finite = nullptr;
};

/// Makes one update in one pass over the range (lamb: two passes). T: float, or double for
/// reference tests. Throws std::invalid_argument if sizes differ, or if lamb is lazy or gets
/// `addend` or `finite`.
///
/// The new value of an element depends only on the operands of this element, not on its position or
/// alignment. So updating a vector in slices gives the same bits as updating it at once. lamb is
/// the exception: its result depends on all elements of the range. NaN and infinity propagate.
template <class T>
void update(const optimizer& rule, const update_arguments<T>& arguments);

/// Updates a tensor of state (parameter_kind), such as a running mean: updated = w + decay * (scale
/// * sum - w), element by element, computed in double. `updated` may be the same memory as
/// `weights`. Throws std::invalid_argument if the sizes differ.
/// @param sum the statistic, summed over samples
/// @param scale 1 / samples
void update_statistics(std::span<const float> weights, std::span<const float> sum, double scale,
                       double decay, std::span<float> updated);

extern template void update<float>(const optimizer&, const update_arguments<float>&);
extern template void update<double>(const optimizer&, const update_arguments<double>&);

} // namespace troupe
