#pragma once

#include "kernels/cpu/vectorize.hpp"

#include <cstddef>

namespace troupe::cpu {

// Sums in double. The terms are distributed over 16 independent sums, which are added at the end.
// In a single sum, each addition would wait for the previous addition. The order of the additions
// depends only on the number of terms.

using double4 [[gnu::vector_size(32)]] = double;

/// Loads four elements, and converts them to double.
inline double4 load_doubles(const double* x) {
  using unaligned [[gnu::vector_size(32), gnu::aligned(8), gnu::may_alias]] = double;
  return *reinterpret_cast<const unaligned*>(x);
}
inline double4 load_doubles(const float* x) {
  using unaligned [[gnu::vector_size(16), gnu::aligned(4), gnu::may_alias]] = float;
  return __builtin_convertvector(*reinterpret_cast<const unaligned*>(x), double4);
}

/// The sum of term(i) for i < n. vector_term(i) returns the terms i to i + 3.
template <class Vector, class Scalar>
double sum_terms(std::size_t n, Vector vector_term, Scalar term) {
  double4 sums[4] = {};
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16)
    TROUPE_UNROLL(4)
  for (std::size_t j = 0; j < 4; ++j)
    sums[j] += vector_term(i + 4 * j);
  for (; i + 4 <= n; i += 4)
    sums[0] += vector_term(i);
  const double4 all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  double result = (all[0] + all[1]) + (all[2] + all[3]);
  for (; i < n; ++i)
    result += term(i);
  return result;
}

template <class T>
double sum_of(std::size_t n, const T* x) {
  return sum_terms(
    n, [x](std::size_t i) { return load_doubles(x + i); },
    [x](std::size_t i) { return static_cast<double>(x[i]); });
}

} // namespace troupe::cpu
