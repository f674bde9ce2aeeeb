#pragma once

#include "kernels/graph/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// The position and size of a value in memory during a run of a plan. The comment of each `place`
/// explains `index`.
struct operand {
  enum class place : std::uint8_t {
    none,
    /// A parameter. index: its position in the layout, the list of all parameters. The caller of a
    /// run provides a pointer to it.
    weight,
    /// A placeholder. index: its position among the placeholders. The caller of a run provides a
    /// pointer to its value.
    feed,
    /// The arena, the memory in which the executor stores intermediate values. index: the first
    /// element, in units of float32. (An executor of double has units of double.) It is a multiple
    /// of 16.
    arena,
    /// The flat gradient of the run, which is the gradients of all parameters in one vector. index:
    /// the first element.
    gradient,
  };

  place where = place::none;
  std::size_t index = 0;
  troupe::shape shape;
  dtype type = dtype::float32;
  /// The name of the node that computes the value, for printing.
  std::string name;

  bool exists() const noexcept { return where != place::none; }
};

/// One operation of an `elementwise` instruction, which runs several element-wise operations in one
/// pass. Operands are identified by numbers. The inputs of the instruction come first; temporaries,
/// which hold results of earlier operations, follow.
struct element_step {
  operation op = operation::add;
  std::uint32_t a = 0;
  /// For operations with two or three operands.
  std::uint32_t b = 0;
  /// For operations with three operands.
  std::uint32_t c = 0;
  /// The number of the temporary that receives the result. The last step ignores this and writes to
  /// the output of the instruction.
  std::uint32_t result = 0;
  double factor = 1;
};

/// One step of a plan: an operation with the positions of its operands and results. It may compute
/// several nodes of the graph at once.
struct instruction {
  /// The operation of the step. If the step also has a bias or an epilogue, this is the operation
  /// before them.
  operation op = operation::add;
  std::vector<operand> inputs;
  operand output;
  bool transpose_a = false;
  bool transpose_b = false;
  double factor = 1;

  /// Copied from the node (node::labels, node::key).
  cross_entropy labels;
  std::uint64_t key = 0;

  /// For convolutions and pooling.
  troupe::window window;
  /// Copied from the node (node::axes, node::cell, node::attention).
  std::vector<std::size_t> axes;
  troupe::cell cell = troupe::cell::rnn;
  attention_operands attention;

  /// An operand that is added to the result. For matmul, it is added to each row. For conv2d and
  /// conv2d_input_gradient, it is added to each channel. Its place is `none` if nothing is added.
  operand bias;
  /// The epilogue: an operation on each element of the result while the result is still in the
  /// cache. It is an activation, the derivative of an activation, or a sum. A derivative also reads
  /// the result of the activation, and a sum another value; this is `epilogue_operand`.
  std::optional<operation> after;
  operand epilogue_operand;

  /// For elementwise: the operations, and the number of temporaries that they use.
  std::vector<element_step> program;
  std::size_t temporaries = 0;

  /// For softmax_cross_entropy: additional results. The place of a result that is not needed is
  /// `none`.
  operand gradient;
  operand correct;
  /// More results. For attention: the statistics. For attention_gradient: the gradients of the
  /// second and third operand. The place of a result that is not needed is `none`.
  std::vector<operand> more;

  /// Calls f(operand) for each result.
  template <class F>
  void each_result(F f) const {
    for (const auto* x : {&output, &gradient, &correct})
      if (x->exists())
        f(*x);
    for (const auto& x : more)
      if (x.exists())
        f(x);
  }
};

} // namespace troupe
