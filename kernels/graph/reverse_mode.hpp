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

// Internal to gradients(). The gradient rules of the operations are in operation_traits.cpp. Longer
// rules are in gradients.cpp, gradients_images.cpp and gradients_sequences.cpp.

namespace troupe {

/// Reverse mode. Visits the nodes from y backwards. At each node, the gradient rule of its
/// operation adds to the gradients of the inputs of the node.
class reverse_mode {
public:
  reverse_mode(expression y, std::span<const expression> xs, expression seed);

  /// The gradient with respect to x. It is a constant 0 if y does not depend on x.
  expression of(expression x);

private:
  friend struct gradient_step;
  /// An attention node that reads some columns directly from the tensor `source`, although the
  /// graph has a node `slice` with these columns (see operand_search in attention.cpp). The
  /// gradient with respect to `slice` must include this attention, too. All three members are node
  /// ids.
  struct bypass {
    std::uint32_t slice;
    std::uint32_t attention;
    std::uint32_t source;
  };
  void find_bypasses(expression x, std::uint32_t end);
  void visit(std::uint32_t id);
  void visit_bypassing(std::uint32_t id);

  graph& graph_;
  /// By node id: true if the node depends on some x of `xs`. Only these nodes get a gradient.
  std::vector<bool> wanted_;
  std::vector<std::optional<expression>> gradient_;
  std::vector<bypass> bypasses_;
  /// By the id of a slice: the part of its gradient that comes from attentions that bypass the
  /// slice. This part is not in gradient_. Otherwise, the gradient rule of the slice would add it
  /// to the gradient of the source, which already contains it.
  std::map<std::uint32_t, expression> bypassed_;
};

/// The arguments of a gradient rule: a node, its value y, and g, the gradient with respect to y. A
/// rule calls give() for each input for which wants() is true, and creates no nodes for other
/// inputs.
///
/// A product has two inputs, the data and a weight. The gradient of the data reads the weight.
/// Rules call give() for the data first (except multiply_channels). So the weight is not read after
/// its own gradient is final, and its bucket is ready earlier (bucket::ready_after).
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
  /// Throws input_error: the node cannot be differentiated again. `what` is the reason, in the
  /// middle of the sentence, such as "ignores a label and".
  [[noreturn]] void refuse(const std::string& what) const;
};

/// The gradient of softmax, y (g - sum_j g_j y_j), where y is the result of softmax.
expression softmax_gradient(expression g, expression y);

/// x times g, where g is a scalar node.
expression times(expression x, expression g);

namespace gradient_rules {

// Each rule has the name of the operation that it differentiates.
using rule = void(const gradient_step&);
rule matmul, batched_matmul, blend, concat, gelu_gradient, softmax_cross_entropy_gradient,
  squared_error, sparse_matmul, sparse_matmul_gradient, conv2d, conv2d_input_gradient,
  conv2d_weight_gradient, normalize_rows_gradient, recurrent, attention, attention_gradient;

/// The gradients of an operation that selects one of two operands for each element. `taken` and
/// `other` are the numbers of these operands. Operand `taken` gets g where `mask` is 1; operand
/// `other` gets g where `mask` is 0.
void by_mask(const gradient_step& s, expression mask, std::size_t taken, std::size_t other);

} // namespace gradient_rules

} // namespace troupe
