#pragma once

#include "kernels/graph/operation_traits.hpp"
#include "kernels/graph/operations.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

// Internal to gradients(). The rules are in operation_traits.cpp, and the longer ones in
// gradients.cpp, gradients_images.cpp and gradients_sequences.cpp.

namespace troupe {

/// Reverse mode: walks the nodes from y backwards and asks each for its contribution to the
/// gradients of its inputs.
class reverse_mode {
public:
  reverse_mode(expression y, std::span<const expression> xs, expression seed);

  /// The gradient with respect to x. Zeros if y does not depend on it.
  expression of(expression x);

private:
  friend struct gradient_step;
  /// An attention that reads columns of a tensor itself, instead of this slice of the tensor.
  struct bypass {
    std::uint32_t slice;
    std::uint32_t attention;
    std::uint32_t source;
  };
  void find_bypasses(expression x, std::uint32_t end);
  void visit(std::uint32_t id);
  void visit_bypassing(std::uint32_t id);

  graph& graph_;
  /// The nodes that depend on some x. Only these get a gradient.
  std::vector<bool> wanted_;
  std::vector<std::optional<expression>> gradient_;
  std::vector<bypass> bypasses_;
  /// By slice: the part of its gradient from attentions that bypass it. It is part of the gradient
  /// of the source, too, so it does not pass through the slice.
  std::map<std::uint32_t, expression> bypassed_;
};

/// The arguments of a gradient rule: a node, its value y, and g, the gradient with respect to y. A
/// rule adds its part to the gradient of each wanted input, and creates no nodes for other inputs.
/// It handles inputs before weights, so that no weight is read after its gradient is final.
struct gradient_step {
  reverse_mode& mode;
  const troupe::node& node;
  expression y;
  expression g;

  expression x(std::size_t input) const { return {mode.graph_, node.inputs[input]}; }
  bool wants(std::size_t input) const {
    return input < node.inputs.size() && mode.wanted_[node.inputs[input]];
  }
  void give(std::size_t input, expression part) const {
    auto& total = mode.gradient_[node.inputs[input]];
    if (wants(input))
      total = total ? add(*total, part) : part;
  }
  /// Throws input_error if the node cannot be differentiated again; `what` is the reason, such as
  /// "ignores a label and".
  [[noreturn]] void refuse(const std::string& what) const;
};

/// Gradient of softmax: y (g - sum_j g_j y_j); y is the result of softmax.
expression softmax_gradient(expression g, expression y);

/// x times the scalar g.
expression times(expression x, expression g);

namespace gradient_rules {

// Named after the operation that they differentiate.
using rule = void(const gradient_step&);
rule matmul, batched_matmul, blend, concat, gelu_gradient, softmax_cross_entropy_gradient,
  squared_error, sparse_matmul, sparse_matmul_gradient, conv2d, conv2d_input_gradient,
  conv2d_weight_gradient, normalize_rows_gradient, recurrent, attention, attention_gradient;

/// The gradients of two operands: operand `taken` gets it where `mask` is 1, operand `other` where
/// it is 0.
void by_mask(const gradient_step& s, expression mask, std::size_t taken, std::size_t other);

} // namespace gradient_rules

} // namespace troupe
