#pragma once

#include "kernels/cuda/mixed.hpp"
#include "kernels/cuda/reductions.hpp"
#include "kernels/cuda/stream.hpp"
#include "kernels/graph/graph.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe::cuda {

// Formulas: kernels/graph/operations.hpp.

/// For each row: exp(x) / sum of exp(x), after subtracting the maximum of the row. If `visible` >
/// 0, the rows form square matrices (visible, visible). Row i of a matrix then uses only its first
/// i + 1 columns, and its other columns become 0 (causal_softmax). `out` may be x if x is float32.
void softmax(stream where, std::size_t rows, std::size_t columns, std::size_t visible,
             mixed_input x, float* out);

struct cross_entropy_arguments {
  std::size_t rows = 0;
  std::size_t classes = 0;
  mixed_input logits;                   // (rows, classes)
  const std::int32_t* labels = nullptr; // (rows)
  cross_entropy how;
  /// Factor for the loss and the gradient.
  double factor = 1;
  /// May be the logits, if they are float32. Null if the gradient is not needed.
  float* gradient = nullptr;   // (rows, classes)
  double* row_space = nullptr; // (3, rows): work space
  double* space = nullptr;     // (sum_space)
};

/// Computes the loss, its gradient, the number of correct samples, and the number of samples whose
/// label is not ignored. One launch computes the results of all rows: it reads the logits of a row
/// once if they fit in registers, and writes the gradient once. Further launches add up the results
/// of the rows.
void softmax_cross_entropy(stream where, const cross_entropy_arguments& arguments,
                           scalar_result loss, scalar_result correct, scalar_result counted);

} // namespace troupe::cuda
