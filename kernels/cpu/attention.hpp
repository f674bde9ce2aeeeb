#pragma once

#include "kernels/plan/attention_layout.hpp"
#include "kernels/range.hpp"

#include <cstddef>

namespace troupe::cpu {

// Formulas: kernels/graph/sequence_operations.hpp. T: float, double.
//
// Attention in blocks of queries and keys (FlashAttention: Dao et al., 2022, arXiv 2205.14135). The
// attention probabilities of a block, called shares here, stay in the cache. If a row of queries
// has several blocks of keys, its running maximum and sum of exponentials are kept, and its result
// so far is scaled again (Milakov and Gimelshein, 2018, arXiv 1805.02867). Products are those of
// gemm.hpp. Where a block begins depends only on the numbers of queries and keys and on `causal`,
// so any number of threads computes the same bits.

/// Elements of scratch space of a thread, aligned to 64 bytes.
template <class T>
std::size_t attention_scratch_elements(const attention_layout& size);

/// Pointers to element 0 of the tensors. attention_layout says where each head begins.
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
