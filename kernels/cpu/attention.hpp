#pragma once

#include "kernels/plan/attention_layout.hpp"
#include "kernels/range.hpp"

#include <cstddef>

namespace troupe::cpu {

// Formulas: kernels/graph/sequence_operations.hpp. T: float, double.
//
// Attention in blocks of queries and keys (FlashAttention: Dao et al., 2022, arXiv 2205.14135). The
// shares of a block stay in the cache. A row that has more keys than a block keeps its maximum and
// the sum of its exponentials, and scales the earlier part of its result (Milakov and Gimelshein,
// 2018, arXiv 1805.02867). Products are those of gemm.hpp. Blocks depend only on the numbers of
// queries and keys, so the bits of the result do too.

/// Elements of scratch space of a thread, aligned to 64 bytes.
template <class T>
std::size_t attention_scratch_elements(const attention_layout& size);

/// The operands of heads; element 0 of a tensor (attention_layout).
template <class T>
struct attention_inputs {
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
};

/// Computes the heads `part` of all heads [0, batch * heads). `y` or `statistics` may be null.
template <class T>
void attention(const attention_layout& size, range part, const attention_inputs<T>& x, T* y,
               T* statistics, T* scratch);

/// The gradients of the operands. Those that are not needed are null.
template <class T>
struct attention_gradients {
  T* q = nullptr;
  T* k = nullptr;
  T* v = nullptr;
};

template <class T>
void attention_gradient(const attention_layout& size, range part, const attention_inputs<T>& x,
                        const T* dy, const T* y, const T* statistics,
                        const attention_gradients<T>& out, T* scratch);

} // namespace troupe::cpu
