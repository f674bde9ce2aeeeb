#pragma once

#include "kernels/graph/sequence_operations.hpp"
#include "kernels/plan/instruction.hpp"

#include <cstddef>

namespace troupe {

/// Describes where the rows of all heads are in a tensor. Row r of head h of sample b begins at
/// element `begin + b * sample + h * head + r * row`.
struct head_rows {
  std::size_t begin = 0;
  std::size_t sample = 0;
  std::size_t head = 0;
  std::size_t row = 0;
};

/// The sizes of an attention or attention_gradient instruction in a run of `batch` samples. The
/// statistics are a tensor (batch, heads, queries) without gaps.
struct attention_layout {
  attention_layout() = default;
  attention_layout(const instruction& x, std::size_t batch);

  std::size_t batch = 0;
  std::size_t heads = 1;
  /// Number of columns of a head.
  std::size_t width = 1;
  /// Number of queries per sample, and number of keys, which is also the number of values.
  std::size_t queries = 0;
  std::size_t keys = 0;
  bool causal = false;
  double factor = 1;
  /// Positions of the rows of the operands. Their gradients have the same positions.
  head_rows q;
  head_rows k;
  head_rows v;
  /// Positions of the rows of the result. Its gradient has the same positions.
  head_rows y;

  /// The position of the first operand of attention() among the inputs of the instruction.
  static std::size_t first_operand(const instruction& x) noexcept {
    return first_attention_operand(x.op);
  }
};

} // namespace troupe
