#pragma once

#include "kernels/graph/graph.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe::cpu {

/// Sums over the rows that softmax_cross_entropy returns.
struct classification {
  double loss = 0;
  std::size_t correct = 0;
  /// Rows whose label is not ignored.
  std::size_t counted = 0;
};

/// out = softmax(x) for each row of x (rows, columns). `out` may be x.
template <class T>
void softmax(std::size_t rows, std::size_t columns, const T* x, T* out);

/// Computes the loss and the number of correct rows from logits (rows, classes) and labels (rows).
/// If `gradient` is not null, also writes the gradient (rows, classes) times `factor`. All of this
/// takes one pass over the logits. Formulas: kernels/graph/operations.hpp. `gradient` may be
/// `logits`. If `need_loss` is false and `gradient` is null, only the number of correct rows is
/// computed, without exponentials.
template <class T>
classification softmax_cross_entropy(std::size_t rows, std::size_t classes, const T* logits,
                                     const std::int32_t* labels, const cross_entropy& how,
                                     double factor, T* gradient, bool need_loss);

/// Returns how many of the n logits are correct. If the label is 1, the logit must be above 0. If
/// the label is 0, the logit must not be above 0. Other labels, and NaN, count as wrong.
template <class T>
std::size_t binary_correct(std::size_t n, const T* logits, const std::int32_t* labels);

/// The sum of (a[i] - b[i])^2, computed in double.
template <class T>
double squared_error(std::size_t n, const T* a, const T* b);

} // namespace troupe::cpu
