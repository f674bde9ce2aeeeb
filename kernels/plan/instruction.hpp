#pragma once

#include "kernels/graph/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// The position and size of a value while a plan runs.
struct operand {
  enum class place : std::uint8_t {
    none,
    /// index: position in the layout; the run binds a pointer to it.
    weight,
    /// index: position among the placeholders; the run binds a pointer to it.
    feed,
    /// index: position in the executor's arena, in units of float32 and a multiple of 16. (An
    /// executor of double has units of double.)
    arena,
    /// index: first element in the flat gradient of the run.
    gradient,
  };

  place where = place::none;
  std::size_t index = 0;
  troupe::shape shape;
  dtype type = dtype::float32;
  /// Name of the node, for printing.
  std::string name;

  bool exists() const noexcept { return where != place::none; }
};

/// One operation of an `elementwise` instruction. Its operands have numbers: first the inputs of
/// the instruction, then temporaries.
struct element_step {
  operation op = operation::add;
  std::uint32_t a = 0;
  /// For operations with two or three operands.
  std::uint32_t b = 0;
  /// For operations with three operands.
  std::uint32_t c = 0;
  /// The number of a temporary; the last step writes to the instruction's output instead.
  std::uint32_t result = 0;
  double factor = 1;
};

/// One step of a plan.
struct instruction {
  /// The (first) operation. `add` with one input copies it.
  operation op = operation::add;
  std::vector<operand> inputs;
  operand output;
  bool transpose_a = false;
  bool transpose_b = false;
  double factor = 1;

  /// Like those of the node.
  cross_entropy labels;
  std::uint64_t key = 0;

  /// For convolutions and pooling.
  troupe::window window;
  /// Like those of the node.
  std::vector<std::size_t> axes;
  troupe::cell cell = troupe::cell::rnn;
  attention_operands attention;

  /// For matmul: added to each row, if it exists. For conv2d: added to each channel.
  operand bias;
  /// Applied to each element of the result while it is still in the cache: an activation, or the
  /// derivative of an activation. The derivative also reads the activation's result,
  /// epilogue_operand.
  std::optional<operation> after;
  operand epilogue_operand;

  /// For elementwise: the steps, and the number of temporaries.
  std::vector<element_step> program;
  std::size_t temporaries = 0;

  /// For softmax_cross_entropy: additional results, if they exist.
  operand gradient;
  operand correct;
  /// Additional results, if they exist. For attention: the statistics. For attention_gradient: the
  /// gradients of the second and third operand.
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
