#pragma once

#include "kernels/graph/operation_traits.hpp"
#include "kernels/graph/operations.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

// Internal to gradients(). The rules stand in operation_traits.cpp; longer ones in gradients.cpp,
// gradients_images.cpp and gradients_sequences.cpp.

namespace troupe {

/// Reverse mode: walks the nodes from y backwards and asks each for its contribution to the
/// gradients of its inputs.
class reverse_mode {
public:
  reverse_mode(expression y, std::span<const expression> xs);

  /// The gradient by x; zeros if y does not depend on it.
  expression of(expression x);

private:
  friend struct gradient_step;
  void visit(std::uint32_t id);

  graph& graph_;
  /// Nodes that depend on some x; only they get a gradient.
  std::vector<bool> wanted_;
  std::vector<std::optional<expression>> gradient_;
};

/// What a gradient rule sees: a node, its value y, and g, the gradient by y. A rule gives each
/// input that is wanted its part, and makes no nodes for others. Inputs come before weights, so
/// that weights are not read after their gradient is final.
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
  /// Throws input_error: the node `what`, such as "ignores a label", cannot be differentiated.
  [[noreturn]] void refuse(const std::string& what) const;
};

/// Gradient of softmax: y (g - sum_j g_j y_j), y its result.
expression softmax_gradient(expression g, expression y);

/// x times the scalar g.
expression times(expression x, expression g);

namespace gradient_rules {

// By the operation that they differentiate.
using rule = void(const gradient_step&);
rule matmul, batched_matmul, concat, gelu_gradient, softmax_cross_entropy_gradient, squared_error,
  sparse_matmul, sparse_matmul_gradient, conv2d, conv2d_input_gradient, conv2d_weight_gradient,
  normalize_rows_gradient, recurrent;

/// The gradients of two operands, one taken where `mask` is 1, the other where it is 0.
void by_mask(const gradient_step& s, expression mask, std::size_t taken, std::size_t other);

} // namespace gradient_rules

} // namespace troupe
