#pragma once

#include "kernels/cuda/reductions.hpp"
#include "kernels/cuda/stream.hpp"
#include "kernels/graph/graph.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe::cuda {

// Formulas: kernels/graph/operations.hpp.

/// exp(x) / sum of exp(x) in each row, the maximum subtracted. `visible` > 0: rows are those of
/// squares (visible, visible), and row i of one uses its first i + 1 columns only; the others
/// become 0 (causal_softmax). `out` may be x.
void softmax(stream where, std::size_t rows, std::size_t columns, std::size_t visible,
             const float* x, float* out);

struct cross_entropy_arguments {
  std::size_t rows = 0;
  std::size_t classes = 0;
  const float* logits = nullptr;        // (rows, classes)
  const std::int32_t* labels = nullptr; // (rows)
  cross_entropy how;
  /// Of loss and gradient.
  double factor = 1;
  /// May be the logits; null if not wanted.
  float* gradient = nullptr;   // (rows, classes)
  double* row_space = nullptr; // (3, rows): work space
  double* space = nullptr;     // (sum_space)
};

/// Loss, its gradient and the numbers of samples that are correct and that count, in one pass over
/// the logits and one over the gradient.
void softmax_cross_entropy(stream where, const cross_entropy_arguments& arguments,
                           scalar_result loss, scalar_result correct, scalar_result counted);

} // namespace troupe::cuda
