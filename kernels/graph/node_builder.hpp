#pragma once

#include "kernels/error.hpp"
#include "kernels/graph/operation_traits.hpp"
#include "kernels/graph/precision.hpp"

#include <span>
#include <string>
#include <utility>
#include <vector>

// Helpers of the functions that build nodes: kernels/graph/operations.cpp and the other
// *_operations.cpp. Internal to kernels.

namespace troupe {

/// The name and shape of a tensor, for messages: "x" (batch, 784).
inline std::string describe(expression x) {
  return "\"" + x.name() + "\" " + to_string(x.shape());
}

/// Throws input_error. Its text is the name of the operation, a colon and `what`, such as "matmul:
/// ...".
[[noreturn]] inline void refuse(operation op, const std::string& what) {
  throw input_error(std::string(to_string(op)) + ": " + what);
}

inline void check_float(operation op, expression x) {
  if (x.node().type == dtype::int32)
    refuse(op, describe(x) + " is int32; expected a tensor of floating-point numbers");
}

/// Throws input_error if x is sparse and the operation does not accept sparse inputs. Only
/// sparse_matmul and its gradient accept them.
inline void check_not_sparse(operation op, expression x) {
  if (x.node().type == dtype::sparse && !traits_of(op).takes_sparse)
    refuse(op, describe(x) + " is sparse; only a dense layer (sparse_matmul) can read it");
}

/// A node with this operation and shape, and without inputs and attributes.
inline node make_node(operation op, shape dims) {
  node x;
  x.op = op;
  x.shape = std::move(dims);
  return x;
}

/// Appends a node to the graph of its inputs, and chooses its type (choose_type). Throws
/// input_error if the inputs belong to different graphs. Requires at least one input.
inline expression append(node x, std::span<const expression> inputs) {
  auto& owner = inputs.front().owner();
  for (auto input : inputs) {
    if (!input.valid() || &input.owner() != &owner)
      refuse(x.op, "the arguments belong to different graphs");
    check_not_sparse(x.op, input);
  }
  std::vector<expression> operands(inputs.begin(), inputs.end());
  choose_type(x, operands);
  for (auto operand : operands)
    x.inputs.push_back(operand.id());
  return owner.append(std::move(x));
}

inline expression append(node x, std::initializer_list<expression> inputs) {
  return append(std::move(x), std::span<const expression>{inputs.begin(), inputs.size()});
}

} // namespace troupe
