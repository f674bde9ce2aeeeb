#pragma once

#include "kernels/graph/graph.hpp"

#include <cstdint>
#include <span>
#include <vector>

// Mixed precision (Micikevicius et al., 2018, arXiv 1710.03740), in the way of PyTorch's autocast.
//
// A result has 16 bits or 32; operation_precision says which. An operation accepts any mix of
// operands. It computes in float32, also in the middle of a fused step, and then rounds each of its
// results once to the type of that result (to nearest; of two equally near numbers, to the one
// whose last bit is 0). Parameters, their gradients, feeds and losses are float32.

namespace troupe {

/// How an operation chooses the type of its result.
enum class operation_precision : std::uint8_t {
  /// float32: losses, sums, exponential functions, statistics, recurrent layers.
  wide,
  /// For products. The operands are cast to the type of 16 bits, terms are added up in float32, and
  /// the result has 16 bits. There is one exception: a result without a batch, such as the gradient
  /// of a weight, is a sum over all samples and stays in float32.
  product,
  /// The type of the floating-point operands. float32 if they differ.
  same,
  /// The type of the first operand. The others are parameters or statistics, in float32.
  first,
};

/// Chooses the type of a node whose inputs are these, and casts the inputs if the node requires it.
/// For the functions that build nodes.
void choose_type(node& x, std::vector<expression>& inputs);

/// A copy of the graph in which products and convolutions compute with this type of 16 bits. The
/// parameters, the placeholders and their order stay the same. The first operations are casts of
/// parameters. The loss, and other values that leave a graph, may need a cast to float32
/// (graph::casted).
/// @param ids receives the new id of each node
graph lower_precision(const graph& source, dtype type, std::vector<std::uint32_t>& ids);

} // namespace troupe
