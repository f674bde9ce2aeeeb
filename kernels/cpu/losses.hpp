#pragma once

#include "kernels/graph/graph.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe::cpu {

/// Results of softmax_cross_entropy that are sums over the rows.
struct classification {
  double loss = 0;
  std::size_t correct = 0;
  /// Rows whose label is not ignored.
  std::size_t counted = 0;
};

/// out = softmax(x), each row of (rows, columns). `out` may be x.
template <class T>
void softmax(std::size_t rows, std::size_t columns, const T* x, T* out);

/// Computes the loss, the number of correct rows and, unless nullptr, `factor` times the gradient
/// (rows, classes), from logits (rows, classes) and labels (rows), in one pass; see
/// kernels/graph/operations.hpp. `gradient` may be `logits`. If `need_loss` is false and there is
/// no gradient, no exponentials are computed.
template <class T>
classification softmax_cross_entropy(std::size_t rows, std::size_t classes, const T* logits,
                                     const std::int32_t* labels, const cross_entropy& how,
                                     double factor, T* gradient, bool need_loss);

/// The number of correct logits among n: above 0 if the label is 1, not above 0 if it is 0. Other
/// labels, and NaN, count as wrong.
template <class T>
std::size_t binary_correct(std::size_t n, const T* logits, const std::int32_t* labels);

/// Sum of (a[i] - b[i])^2, added up in double.
template <class T>
double squared_error(std::size_t n, const T* a, const T* b);

} // namespace troupe::cpu
