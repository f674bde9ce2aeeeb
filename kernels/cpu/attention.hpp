#pragma once

#include "kernels/plan/attention_layout.hpp"
#include "kernels/range.hpp"

#include <cstddef>

namespace troupe::cpu {

// Formulas: kernels/graph/sequence_operations.hpp. T: float, double.
//
// Attention is computed in blocks of queries and keys (FlashAttention: Dao et al., 2022, arXiv
// 2205.14135). The attention probabilities are called shares here. The shares of a block stay in
// the cache. If a query needs several blocks of keys, its largest score so far and its sum of
// exponentials so far are kept. After each block, the result so far is scaled to the new largest
// score (Milakov and Gimelshein, 2018, arXiv 1805.02867). Matrix products use gemm.hpp.
//
// The positions of the blocks depend only on the numbers of queries and keys and on `causal`. So
// the results have the same bits for any number of threads.

/// Number of elements of scratch space that a thread needs. The scratch space must be aligned to 64
/// bytes.
template <class T>
std::size_t attention_scratch_elements(const attention_layout& size);

/// Pointers to element 0 of the tensors. attention_layout gives the position of each head.
template <class T>
struct attention_inputs {
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
};

/// Computes attention for the heads `part`. The heads of all samples are numbered from 0 to batch *
/// heads - 1. `y` or `statistics` may be null if it is not needed.
template <class T>
void attention(const attention_layout& size, range part, const attention_inputs<T>& x, T* y,
               T* statistics, T* scratch);

/// Where the gradients of the operands are written. A pointer is null if its gradient is not
/// needed.
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
