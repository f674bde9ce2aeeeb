#pragma once

#include "kernels/cuda/mixed.hpp"
#include "kernels/cuda/stream.hpp"
#include "kernels/plan/attention_layout.hpp"

#include <cstddef>

namespace troupe::cuda {

// Attention. Formulas: kernels/graph/sequence_operations.hpp. A head has at most 128 columns. A
// pointer points to element 0 of a tensor; attention_layout says where the heads of the tensor are.
// Each tensor has its own type. If all tensors have the same type of 16 bits, tensor cores compute
// the products (narrow_attention.hpp).

struct attention_inputs {
  mixed_input q;
  mixed_input k;
  mixed_input v;
};

/// Computes attention in one launch. A block of threads handles a block of queries, in one pass
/// over the keys. The shares (attention probabilities) of the block stay in shared memory, or in
/// registers if tensor cores are used. `y` or `statistics` (batch, heads, queries) may be null.
void attention(stream where, const attention_layout& size, const attention_inputs& x,
               mixed_output y, float* statistics);

/// The gradients of the operands. A gradient that is not needed is null.
struct attention_gradients {
  mixed_output q;
  mixed_output k;
  mixed_output v;
};

/// Computes the gradients in two launches. In the first launch, a block of threads handles a block
/// of queries, in one pass over the keys, and computes the gradient of q. In the second launch, a
/// block of threads handles a block of keys, in one pass over the queries, and computes the
/// gradients of k and v. With tensor cores and heads of more than 64 columns, k and v need separate
/// launches. `products` (batch, heads, queries) is work space.
void attention_gradient(stream where, const attention_layout& size, const attention_inputs& x,
                        mixed_input dy, mixed_input y, const float* statistics, float* products,
                        const attention_gradients& out);

} // namespace troupe::cuda
