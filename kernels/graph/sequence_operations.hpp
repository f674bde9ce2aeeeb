#pragma once

#include "kernels/graph/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

// Operations on sequences (batch, time, features), possibly with more dimensions. Axes count from
// 0; the batch is axis 0 and stays there. Each function throws input_error if shapes do not fit,
// and names them.

// -- moving elements

/// Dimension i of the result is dimension axes[i] of x.
expression transpose(expression x, const std::vector<std::size_t>& axes);
/// Positions [begin, end) of x along `axis`, which must not be the batch. x may be int32; then only
/// embedding() and to_float() can read the result.
expression slice(expression x, std::size_t axis, std::int64_t begin, std::int64_t end);
/// A tensor of shape `dims` with x at positions [begin, ...) along `axis`, and 0 elsewhere: the
/// adjoint of slice.
expression place(expression x, std::size_t axis, std::int64_t begin, shape dims);
/// x in the opposite order along `axis`, which must not be the batch.
expression reverse(expression x, std::size_t axis);
/// Joins tensors along `axis`. Their other extents must be equal.
expression concat(const std::vector<expression>& xs, std::size_t axis);
/// The elements from which blend() computes one: a position in the operand, and the weight of the
/// element there.
struct blend_term {
  std::size_t position = 0;
  double weight = 0;
};
/// An entry per position of the result.
using blend_table = std::vector<std::vector<blend_term>>;
/// Element i along `axis`, which must not be the batch, is the sum of weight * x[position] over the
/// terms of table[i]; 0 if there are none. Unlike a product with a matrix, it reads no other
/// elements: infinity and NaN have no effect elsewhere. For interpolation.
expression blend(expression x, std::size_t axis, const blend_table& table);
/// The adjoint: entry p has the terms (i, weight) of all entries i with the term (p, weight), in
/// ascending order.
blend_table transposed(const blend_table& table, std::size_t extent);
/// The table of a node's second operand.
blend_table blend_table_of(expression constant);
/// Returns x, but gradients() treats it as a constant.
expression stop_gradient(expression x);

// -- products

/// For each combination of the leading dimensions, op(a) op(b) of the matrices in the last two:
/// (..., m, k) and (..., k, n) to (..., m, n).
expression batched_matmul(expression a, expression b, bool transpose_a = false,
                          bool transpose_b = false);
/// x (R, n): each row times g (n).
expression multiply_rows(expression x, expression g);

// -- tables

/// The rows of table (entries, n) that ids, int32 (batch, ...), select: (batch, ..., n). An id
/// outside the table gives a row of NaN.
expression embedding(expression table, expression ids);
/// The gradient of embedding, d sum(y * dy) / d table, (entries, n): dy is added up by id, in
/// order.
expression embedding_gradient(expression dy, expression ids, std::int64_t entries);

// -- normalization and attention

/// (x - mean) / sqrt(variance + epsilon) of each row of (R, n).
expression normalize_rows(expression x, double epsilon = 1e-5);
/// d sum(y * dy) / dx of normalize_rows.
expression normalize_rows_gradient(expression dy, expression x, double epsilon);
/// normalize_rows(x) * gain + bias (Ba, Kiros and Hinton, 2016).
expression layer_norm(expression x, expression gain, expression bias, double epsilon = 1e-5);
/// x / sqrt(mean of x^2 + epsilon) * gain of each row of (R, n), gain (n) (Zhang and Sennrich,
/// 2019).
expression rms_norm(expression x, expression gain, double epsilon = 1e-6);
/// For each row i of the square matrices (..., T, T): softmax over its elements j <= i, and 0 after
/// them.
expression causal_softmax(expression x);
/// softmax(factor q k^T) v in each head (Vaswani et al., 2017), without storing the softmax: it is
/// computed in blocks, and again for the gradient (FlashAttention: Dao et al., 2022, arXiv
/// 2205.14135). q (batch, T, heads * n), k and v (batch, S, heads * n) to (batch, T,
/// heads * n); or (batch, heads, T, n) and (batch, heads, S, n) to (batch, heads, T, n). If it is
/// causal, S is T, and row i of q sees rows up to i.
expression attention(expression q, expression k, expression v, std::int64_t heads, double factor,
                     bool causal);
/// For gradients(). log(sum_j exp(factor q_i k_j)) of each row i of the queries, (batch, heads, T).
/// `of` is a node of attention().
expression attention_statistics(expression of);
/// For gradients(). d sum(y * dy) / d (an operand of the node `of` of attention(), whose result is
/// y), with the shape of the operand.
expression attention_gradient(expression dy, expression of, std::size_t operand);
/// The number of the first operand of attention among the inputs of such a node. An
/// attention_gradient reads dy, the result and the statistics before the operands.
constexpr std::size_t first_attention_operand(operation op) noexcept {
  return op == operation::attention_gradient ? 3 : 0;
}
/// For gradients(). The same as a node of attention() with these operands, in simpler operations.
expression composed_attention(const node& of, const std::vector<expression>& operands);
/// Attention with `heads` heads (Vaswani et al., 2017): q (batch, T, heads * d), k and v (batch, S,
/// heads * d) to (batch, T, heads * d). Each position of q sees all positions of k and v. If it is
/// causal, S is T, and position i sees positions up to i.
expression multi_head_attention(expression q, expression k, expression v, std::int64_t heads,
                                bool causal);
inline expression causal_attention(expression q, expression k, expression v, std::int64_t heads) {
  return multi_head_attention(q, k, v, heads, true);
}

// -- recurrence, with PyTorch's definitions; the states before the first time step are 0
//
// z (batch, T, gates * hidden) are the projections of the inputs, including biases; w (gates *
// hidden, hidden); result h (batch, T, hidden). s is the sigmoid.

/// h_t = tanh(z_t + h_{t-1} w^T).
expression rnn(expression z, expression w);
/// Gates i, f, g, o = z_t + h_{t-1} w^T: c_t = s(f) c_{t-1} + s(i) tanh(g), h_t = s(o) tanh(c_t)
/// (Hochreiter and Schmidhuber, 1997).
expression lstm(expression z, expression w);
/// Gates r, u, n: (a_r, a_u, a_n) = h_{t-1} w^T + b, r = s(z_r + a_r), u = s(z_u + a_u),
/// n = tanh(z_n + r a_n), h_t = (1 - u) n + u h_{t-1} (Cho et al., 2014). b (3 hidden).
expression gru(expression z, expression w, expression b);

/// A GRU whose reset gate multiplies the state before the product (linear_before_reset = 0 in ONNX,
/// reset_after=False in Keras): n = tanh(z_n + (r h_{t-1}) w_n^T), with r, u and h_t as in gru().
/// It consists of several operations per time step.
expression gru_reset_before(expression z, expression w);

/// d sum(h * dh) / d (inputs of the activations), from the `states` of the recurrent node: (batch,
/// T, hidden) for rnn, (batch, T, 4 hidden) for lstm, and for gru r, u, n and r n: (batch, T, 4
/// hidden). For gradients().
expression recurrent_gradient(expression dh, expression states, expression w, cell how);

// -- layers

/// A recurrent layer with its own variables, named as in PyTorch: "NAME.weight_ih_l0",
/// "NAME.weight_hh_l0", "NAME.bias_ih_l0" and "NAME.bias_hh_l0". x (batch, T, n) to (batch, T,
/// hidden).
expression recurrent_layer(expression x, const std::string& name, std::int64_t hidden, cell how);

} // namespace troupe
