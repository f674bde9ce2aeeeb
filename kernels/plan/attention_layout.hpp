#pragma once

#include "kernels/graph/sequence_operations.hpp"
#include "kernels/plan/instruction.hpp"

#include <cstddef>

namespace troupe {

/// Where the rows of all heads of a tensor are: row r of head h of sample b begins at element
/// `begin + b * sample + h * head + r * row`.
struct head_rows {
  std::size_t begin = 0;
  std::size_t sample = 0;
  std::size_t head = 0;
  std::size_t row = 0;
};

/// The sizes of a step of attention or attention_gradient, in a run of `batch` samples. Statistics
/// are (batch, heads, queries), without gaps.
struct attention_layout {
  attention_layout() = default;
  attention_layout(const instruction& x, std::size_t batch);

  std::size_t batch = 0;
  std::size_t heads = 1;
  /// Columns of a head.
  std::size_t width = 1;
  /// Number of queries, and of keys and values.
  std::size_t queries = 0;
  std::size_t keys = 0;
  bool causal = false;
  double factor = 1;
  /// Of the operands and their gradients.
  head_rows q;
  head_rows k;
  head_rows v;
  /// Of the result and its gradient.
  head_rows y;

  /// The number of the first operand among the inputs of the instruction.
  static std::size_t first_operand(const instruction& x) noexcept {
    return first_attention_operand(x.op);
  }
};

} // namespace troupe
