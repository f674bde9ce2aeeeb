#pragma once

#include "kernels/graph/graph.hpp"

#include <cstdint>
#include <span>
#include <vector>

// Mixed precision (Micikevicius et al., 2018, arXiv 1710.03740). It works like PyTorch's autocast.
//
// The result of an operation has 16 or 32 bits, according to operation_precision. The operands may
// have any mix of types. A step of a plan computes in float32. It rounds each of its results once,
// to the nearest number of the type of the result. If two numbers are equally near, it takes the
// one whose last bit is 0. Values between the operations of a fused step are not rounded.
// Parameters, their gradients, feeds and losses are float32.

namespace troupe {

/// How an operation chooses the type of its result.
enum class operation_precision : std::uint8_t {
  /// float32. For losses, sums, exponential functions, statistics, recurrent layers and others.
  wide,
  /// For products. If graph::precision is a type of 16 bits, the operands are cast to this type.
  /// (Operands of operations with operation_traits::keeps_type are not cast.) The terms are added
  /// up
  /// in float32, and the result has 16 bits. But a result without a batch, such as the gradient of
  /// a
  /// weight, stays in float32, because it is a sum over all samples.
  product,
  /// The type of the floating-point operands. float32 if their types differ.
  same,
  /// The type of the first operand. The types of the other operands, such as parameters and
  /// statistics, do not matter.
  first,
};

/// Sets the type of a node with these inputs. If the node is a product, also casts the inputs. Only
/// for the functions that build nodes.
void choose_type(node& x, std::vector<expression>& inputs);

/// A copy of the graph in which products and convolutions compute with this type of 16 bits. The
/// parameters and the placeholders stay the same, in the same order. Casts of parameters come
/// before all other operations. The loss and other values that a caller reads may have 16 bits.
/// Then the caller must cast them to float32 (graph::casted).
/// @param ids on return: for each node of `source`, the id of its copy
graph lower_precision(const graph& source, dtype type, std::vector<std::uint32_t>& ids);

} // namespace troupe
