#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe {

enum class optimizer_kind : std::uint8_t { sgd, momentum, nesterov };

/// An update rule, by PyTorch's definitions (torch.optim.SGD with dampening 0). With the gradient
/// of a step g = scale * gradient + weight_decay * w:
///
/// - sgd:      w' = w - rate * g
/// - momentum: v' = momentum * v + g,  w' = w - rate * v'
/// - nesterov: v' = momentum * v + g,  w' = w - rate * (g + momentum * v')
///
/// v starts at 0.
struct optimizer {
  optimizer_kind kind = optimizer_kind::sgd;
  float momentum = 0.9F;
  float weight_decay = 0;

  /// Elements of state per parameter: 0 or 1. The state of a range of n parameters is slots() * n
  /// elements, zeros at first.
  std::size_t slots() const noexcept { return kind == optimizer_kind::sgd ? 0 : 1; }
  bool operator==(const optimizer&) const = default;
};

/// Arguments of one update of a range of n parameters.
template <class T>
struct update_arguments {
  /// n elements.
  std::span<const T> weights;
  /// n elements: the gradient *summed* over samples.
  std::span<const T> gradient;
  /// slots() * n elements, updated in place.
  std::span<T> state;
  /// n elements; either the same memory as `weights` (in place) or apart from it.
  std::span<T> updated;
  double rate = 0;
  /// Factor of the gradient: 1 / samples.
  double scale = 1;
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
