#pragma once

#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/mixed.hpp"
#include "kernels/cuda/stream.hpp"
#include "kernels/graph/dtype.hpp"
#include "kernels/plan/attention_layout.hpp"

#include <algorithm>
#include <initializer_list>

namespace troupe::cuda {

// Attention by tensor cores. The operands and results have one type of 16 bits, with one exception:
// the result y, which the gradient reads, may have any type. attention() and attention_gradient()
// call these functions.

/// True if q, k, v, `others` and `results` have the same type of 16 bits. Results that are null are
/// ignored.
inline bool fits_tensor_cores(const attention_inputs& x, std::initializer_list<mixed_input> others,
                              std::initializer_list<mixed_output> results) {
  const auto type = x.q.type;
  return is_narrow(type) && x.k.type == type && x.v.type == type
    && std::ranges::all_of(others, [&](const auto& y) { return y.type == type; })
    && std::ranges::all_of(results,
                           [&](const auto& y) { return y.data == nullptr || y.type == type; });
}

/// See attention(). Exponentials of scores are rounded to the type of v before they are multiplied
/// by v. Sums and statistics are in float32 (as in FlashAttention-2; Dao 2023, algorithm 1).
void narrow_attention(stream where, const attention_layout& size, const attention_inputs& x,
                      mixed_output y, float* statistics);

/// See attention_gradient(). Shares (attention probabilities) and gradients of scores are rounded
/// to the type of q before they are multiplied by other operands.
void narrow_attention_gradient(stream where, const attention_layout& size,
                               const attention_inputs& x, mixed_input dy, mixed_input y,
                               const float* statistics, float* products,
                               const attention_gradients& out);

} // namespace troupe::cuda
