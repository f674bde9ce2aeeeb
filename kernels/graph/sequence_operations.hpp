#pragma once

#include "kernels/graph/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

// Operations on sequences (batch, time, features), possibly with more dimensions. Axes are counted
// from 0. The batch is axis 0 and stays there. If shapes do not fit, each function throws
// input_error with the names and shapes of the tensors.

// -- moving elements

/// Dimension i of the result is dimension axes[i] of x.
expression transpose(expression x, const std::vector<std::size_t>& axes);
/// The positions [begin, end) of x along `axis`, which must not be the batch. x may be int32; then
/// only embedding() and to_float() can read the result.
expression slice(expression x, std::size_t axis, std::int64_t begin, std::int64_t end);
/// A tensor of shape `dims` with x at positions [begin, ...) along `axis`, and 0 elsewhere: the
/// adjoint of slice.
expression place(expression x, std::size_t axis, std::int64_t begin, shape dims);
/// x with its positions along `axis` in the opposite order. The axis must not be the batch.
expression reverse(expression x, std::size_t axis);
/// Joins tensors along `axis`, which must not be the batch. All their other extents must be equal.
expression concat(const std::vector<expression>& xs, std::size_t axis);
/// One term of a weighted sum in blend(): a position in the operand, and the weight of the element
/// at this position.
struct blend_term {
  std::size_t position = 0;
  double weight = 0;
};
/// The terms of blend() for each position of its result.
using blend_table = std::vector<std::vector<blend_term>>;
/// Weighted sums along `axis`, for example for interpolation. Element i of the result is the sum of
/// weight * x[position] over the terms of table[i], or 0 if there are no terms. The axis must not
/// be the batch.
///
/// blend() reads only the elements of the terms. A product with a matrix would also multiply all
/// other elements by 0, and infinity or NaN would spread.
expression blend(expression x, std::size_t axis, const blend_table& table);
/// The table of the adjoint of blend(). For each term (p, weight) of entry i of `table`, entry p of
/// the result has the term (i, weight). The terms are in ascending order of i. The result has
/// `extent` entries.
blend_table transposed(const blend_table& table, std::size_t extent);
/// Reads the table of a blend node back from the constant that is its second operand.
blend_table blend_table_of(expression constant);
/// Returns a tensor with the value of x, which gradients() treats as a constant.
expression stop_gradient(expression x);

// -- products

/// Matrix products op(a) op(b) over the last two dimensions, one for each combination of the
/// leading dimensions: (..., m, k) and (..., k, n) to (..., m, n). op(x) is the transpose of x if
/// the flag is set, otherwise x.
expression batched_matmul(expression a, expression b, bool transpose_a = false,
                          bool transpose_b = false);
/// Multiplies each row of x (R, n) by g (n), element by element. Here and below, R stands for all
/// leading dimensions.
expression multiply_rows(expression x, expression g);

// -- tables

/// Looks up rows of the table (entries, n). The ids are int32 (batch, ...). Result: (batch, ...,
/// n). An id outside the table gives a row of NaN.
expression embedding(expression table, expression ids);
/// The gradient of embedding with respect to the table: d sum(y * dy) / d table, (entries, n). Row
/// i is the sum of the rows of dy whose id is i, added in their order.
expression embedding_gradient(expression dy, expression ids, std::int64_t entries);

// -- normalization and attention

/// (x - mean) / sqrt(variance + epsilon) for each row of x (R, n).
expression normalize_rows(expression x, double epsilon = 1e-5);
/// The gradient of normalize_rows, d sum(y * dy) / dx.
expression normalize_rows_gradient(expression dy, expression x, double epsilon);
/// Layer normalization (Ba, Kiros and Hinton, 2016): normalize_rows(x) * gain + bias. gain and bias
/// have shape (n).
expression layer_norm(expression x, expression gain, expression bias, double epsilon = 1e-5);
/// x / sqrt(mean of x^2 + epsilon) * gain for each row of x (R, n). gain has shape (n) (Zhang and
/// Sennrich, 2019).
expression rms_norm(expression x, expression gain, double epsilon = 1e-6);
/// For each row i of the square matrices (..., T, T): softmax over the elements j <= i. The
/// elements j > i become 0.
expression causal_softmax(expression x);
/// softmax(factor q k^T) v in each head (Vaswani et al., 2017). The softmax is not stored: it is
/// computed in blocks, and again for the gradient (FlashAttention: Dao et al., 2022, arXiv
/// 2205.14135). If the width n of a head is above 128, the result consists of simpler operations,
/// which do store the softmax.
///
/// The tensors have one of these shapes:
///   q (batch, T, heads * n), k and v (batch, S, heads * n). Result: (batch, T, heads * n).
///   q (batch, heads, T, n), k and v (batch, heads, S, n). Result: (batch, heads, T, n).
/// If `causal` is true, S must be T, and row i of q sees only rows up to i of k and v.
expression attention(expression q, expression k, expression v, std::int64_t heads, double factor,
                     bool causal);
/// For gradients(): log(sum_j exp(factor q_i k_j)) for each row i of the queries. `of` is a node
/// with operation::attention. Result: (batch, heads, T).
expression attention_statistics(expression of);
/// For gradients(): the gradient of the attention node `of` with respect to its operand number
/// `operand`: d sum(y * dy) / d operand, where y is the result of `of`. It has the shape of the
/// operand.
expression attention_gradient(expression dy, expression of, std::size_t operand);
/// The position of the first operand of attention among the inputs of a node. In an
/// attention_gradient, the operands follow three other inputs: dy, the result of attention and the
/// statistics.
constexpr std::size_t first_attention_operand(operation op) noexcept {
  return op == operation::attention_gradient ? 3 : 0;
}
/// For gradients(): attention with these operands and with the options of the node `of`, built from
/// simpler operations.
expression composed_attention(const node& of, const std::vector<expression>& operands);
/// attention() with the factor 1 / sqrt(d), where d is the width of a head. q has the shape (batch,
/// T, heads * d), k and v (batch, S, heads * d). Result: (batch, T, heads * d). Each position of q
/// sees all positions of k and v. If `causal` is true, S must be T, and position i sees only
/// positions up to i.
expression multi_head_attention(expression q, expression k, expression v, std::int64_t heads,
                                bool causal);
inline expression causal_attention(expression q, expression k, expression v, std::int64_t heads) {
  return multi_head_attention(q, k, v, heads, true);
}

// -- recurrence, with PyTorch's definitions. The states before the first time step are 0.
//
// z (batch, T, gates * hidden) are the projections of the inputs, including biases. w has the shape
// (gates * hidden, hidden). The result is h (batch, T, hidden). s is the sigmoid.

/// A simple recurrent layer: h_t = tanh(z_t + h_{t-1} w^T).
expression rnn(expression z, expression w);
/// An LSTM (Hochreiter and Schmidhuber, 1997) with the gates i, f, g and o.
///   (i, f, g, o) = z_t + h_{t-1} w^T,  c_t = s(f) c_{t-1} + s(i) tanh(g),  h_t = s(o) tanh(c_t).
expression lstm(expression z, expression w);
/// A GRU (Cho et al., 2014) with the gates r, u and n. b has the shape (3 hidden).
///   (a_r, a_u, a_n) = h_{t-1} w^T + b,  r = s(z_r + a_r),  u = s(z_u + a_u),
///   n = tanh(z_n + r a_n),  h_t = (1 - u) n + u h_{t-1}.
expression gru(expression z, expression w, expression b);

/// A GRU whose reset gate multiplies the state before the product (linear_before_reset = 0 in ONNX,
/// reset_after=False in Keras): n = tanh(z_n + (r h_{t-1}) w_n^T). r, u and h_t are computed as in
/// gru(), but without b. Builds several nodes per time step.
expression gru_reset_before(expression z, expression w);

/// For gradients(): d sum(h * dh) / d (inputs of the activations). `states` is the whole recurrent
/// node, which also stores the gates. rnn(), lstm() and gru() return only its last part, h. Result:
/// (batch, T, hidden) for rnn, and (batch, T, 4 hidden) for lstm and gru. For gru, the four parts
/// are the gradients for the activations r, u and n, and the third of these gradients times r.
expression recurrent_gradient(expression dh, expression states, expression w, cell how);

// -- layers

/// A recurrent layer with its own variables, which have the same names as in PyTorch:
/// "NAME.weight_ih_l0", "NAME.weight_hh_l0", "NAME.bias_ih_l0" and "NAME.bias_hh_l0". x (batch, T,
/// n) to (batch, T, hidden).
expression recurrent_layer(expression x, const std::string& name, std::int64_t hidden, cell how);

} // namespace troupe
