#pragma once

#include "kernels/cuda/mixed.hpp"
#include "kernels/cuda/stream.hpp"
#include "kernels/plan/attention_layout.hpp"

#include <cstddef>

namespace troupe::cuda {

// Formulas: kernels/graph/sequence_operations.hpp. Heads are at most 128 wide. Pointers are to
// element 0 of a tensor; attention_layout says where its heads are. Each tensor has its own type.
// If all have the same type of 16 bits, tensor cores multiply (narrow_attention.hpp).

struct attention_inputs {
  mixed_input q;
  mixed_input k;
  mixed_input v;
};

/// One pass over the keys for each block of queries. The shares of a block stay in shared memory.
/// `y` or `statistics` (batch, heads, queries) may be null.
void attention(stream where, const attention_layout& size, const attention_inputs& x,
               mixed_output y, float* statistics);

/// Gradients of the operands. Those that are not needed are null.
struct attention_gradients {
  mixed_output q;
  mixed_output k;
  mixed_output v;
};

/// Two launches: one pass over the keys for each block of queries (q), then one over the queries
/// for each block of keys (k and v; two launches for wide heads of 16 bits). `products` (batch,
/// heads, queries) is work space.
void attention_gradient(stream where, const attention_layout& size, const attention_inputs& x,
                        mixed_input dy, mixed_input y, const float* statistics, float* products,
                        const attention_gradients& out);

} // namespace troupe::cuda
