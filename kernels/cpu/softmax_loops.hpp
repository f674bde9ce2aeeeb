#pragma once

#include "kernels/cpu/math.hpp"
#include "kernels/cpu/sums.hpp"
#include "kernels/cpu/vectorize.hpp"

#include <cstddef>
#include <limits>

// Loops over one row of a softmax. Internal to kernels/cpu.

namespace troupe::cpu {

/// The largest element. NaNs are ignored. If no element is left, the result is -infinity.
template <class T>
T maximum(std::size_t n, const T* x) {
  constexpr std::size_t lanes = 32 / sizeof(T);
  using vector [[gnu::vector_size(32)]] = T;
  using unaligned [[gnu::vector_size(32), gnu::aligned(sizeof(T)), gnu::may_alias]] = T;
  T largest = -std::numeric_limits<T>::infinity();
  std::size_t i = 0;
  if (n >= lanes) {
    vector all = vector{} + largest;
    for (; i + lanes <= n; i += lanes) {
      const vector v = *reinterpret_cast<const unaligned*>(x + i);
      all = v > all ? v : all;
    }
    for (std::size_t j = 0; j < lanes; ++j)
      largest = all[j] > largest ? all[j] : largest;
  }
  for (; i < n; ++i)
    largest = x[i] > largest ? x[i] : largest;
  return largest;
}

/// Writes exp(x[i] - shift) to `out`, which may be x. Returns the sum of these exponentials.
template <class T>
T exponentials(std::size_t n, const T* x, T shift, T* out) {
  TROUPE_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i)
    out[i] = cpu::exp(x[i] - shift);
  return static_cast<T>(sum_of(n, out));
}

} // namespace troupe::cpu
