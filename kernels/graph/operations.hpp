#pragma once

#include "kernels/graph/graph.hpp"

#include <cstdint>
#include <string>

namespace troupe {

// The graph builder. Each function appends a node to the graph of its arguments and infers the
// shape. If two tensors do not fit, it throws input_error with their names and shapes. Notation: R
// stands for any leading dimensions, including the batch, treated as a single dimension of rows; n
// is the last dimension.

// -- Linear algebra

/// op(a) op(b). a and b are matrices (R, n) of rows and last dimension, and op transposes them on
/// request. Result: (R_a, n_b) without transposes. The batch can be the first dimension of the
/// result, but not its last one.
expression matmul(expression a, expression b, bool transpose_a = false, bool transpose_b = false);
/// x (R, n) + b (n): b is added to each row.
expression add_bias(expression x, expression b);
/// x W^T + b: x (R, inputs), W (units, inputs) as in PyTorch's Linear, b (units). Result (R,
/// units).
expression dense(expression x, expression weight, expression bias);
/// x W^T.
expression dense(expression x, expression weight);

// -- Element by element: arguments and result have one shape

expression add(expression a, expression b);
expression subtract(expression a, expression b);
expression multiply(expression a, expression b);
expression divide(expression a, expression b);
/// factor * x.
expression scale(expression x, double factor);
/// x + summand.
expression offset(expression x, double summand);
expression exp(expression x);
/// The natural logarithm.
expression log(expression x);
expression square_root(expression x);
expression absolute(expression x);
/// -1, 0 or 1; the derivative of absolute. Its own derivative is 0.
expression sign(expression x);
/// 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.
expression erf(expression x);
/// 1 - erf(x), with small relative error for large x, too.
expression erfc(expression x);
/// log(1 + exp(x)), without overflow.
expression softplus(expression x);
/// max(x, 0); NaN stays NaN. Its derivative at 0 is 0.
expression relu(expression x);
/// x where x > 0, else slope * x; slope > 0. Its derivative at 0 is the slope.
expression leaky_relu(expression x, double slope = 0.01);
/// x (1 + erf(x / sqrt(2))) / 2 (Hendrycks and Gimpel, 2016; PyTorch's default, not the
/// approximation by tanh).
expression gelu(expression x);
/// dy times the derivative of gelu at its *argument* x: (1 + erf(x / sqrt(2))) / 2 + x phi(x), phi
/// the density of the normal distribution.
expression gelu_gradient(expression dy, expression x);
expression tanh(expression x);
/// 1 / (1 + exp(-x)).
expression sigmoid(expression x);
/// dy where y > 0, else 0; y is the *result* of relu. A NaN in y gives NaN.
expression relu_gradient(expression dy, expression y);
/// dy where y > 0, else slope * dy; y the result of leaky_relu.
expression leaky_relu_gradient(expression dy, expression y, double slope);
/// dy (1 - y^2), y the result of tanh.
expression tanh_gradient(expression dy, expression y);
/// dy y (1 - y), y the result of sigmoid.
expression sigmoid_gradient(expression dy, expression y);
/// The larger of two elements; NaN if one of them is NaN. If both are equal, or one is NaN, the
/// gradient goes to the second.
expression maximum(expression a, expression b);
/// The smaller of two elements; otherwise like maximum.
expression minimum(expression a, expression b);
/// max(x, bound); NaN stays NaN. Its derivative at the bound, and for NaN, is 0.
expression at_least(expression x, double bound);
/// min(x, bound); NaN stays NaN. Its derivative at the bound, and for NaN, is 0.
expression at_most(expression x, double bound);
/// 1 where a > b, else 0, also if one of them is NaN. Its derivative is 0.
expression greater(expression a, expression b);
/// 1 where x > bound, else 0, also if x is NaN. Its derivative is 0.
expression above(expression x, double bound);
/// a where condition > 0, else b; NaN where the condition is NaN. The branch that is not taken
/// never affects the result, even if it is NaN; its gradient is 0 there. The condition has no
/// gradient.
expression select(expression condition, expression a, expression b);

/// The same numbers as float32, bfloat16 or float16, rounded (kernels/graph/precision.hpp). Returns
/// x itself if it has this type. The gradient passes through.
expression cast(expression x, dtype type);

inline expression operator+(expression a, expression b) {
  return add(a, b);
}
inline expression operator-(expression a, expression b) {
  return subtract(a, b);
}
inline expression operator*(expression a, expression b) {
  return multiply(a, b);
}
inline expression operator/(expression a, expression b) {
  return divide(a, b);
}
inline expression operator*(double factor, expression x) {
  return scale(x, factor);
}

// -- Reductions and broadcasts

/// Sum of all elements: scalar.
expression sum(expression x);
/// Sum over the rows: (R, n) -> (n).
expression sum_leading(expression x);
/// Sum of each row: (R, n) -> (R).
expression sum_last(expression x);
/// A scalar, repeated to `dims`.
expression broadcast(expression x, shape dims);
/// (n) -> dims = (R, n), repeated for each row.
expression broadcast_leading(expression x, shape dims);
/// (R) -> dims = (R, n), each element repeated n times.
expression broadcast_last(expression x, shape dims);

// -- Losses: scalars, *summed* over the samples
//
// These are sums, not means, so that contributions of workers with different numbers of samples add
// up. The optimizer divides by the total number of samples.

/// exp(x_i) / sum_j exp(x_j) along the last dimension. The maximum is subtracted first.
expression softmax(expression logits);
/// Sum over samples of the mean over a sample's rows r (a single row if labels are (batch)) of
/// log(sum_j exp(z_rj)) - sum_j q_rj z_rj. logits z (R, classes), labels int32 (R); q_rj = 1 if j
/// is the label of r, else 0; with options, see cross_entropy. If a label is outside 0..classes-1,
/// the loss and that row of the gradient are NaN. If a label is ignored, both are 0, but the mean
/// is still over all rows.
expression softmax_cross_entropy(expression logits, expression labels,
                                 const cross_entropy& how = {});
/// softmax(z) - q, divided by the number of rows per sample, (R, classes): the gradient of
/// softmax_cross_entropy with respect to z.
expression softmax_cross_entropy_gradient(expression logits, expression labels,
                                          const cross_entropy& how = {});
/// The number of rows whose label has the largest logit (the first one if several are equal) and is
/// not ignored: scalar, no gradient. A row with a NaN is wrong.
expression softmax_correct(expression logits, expression labels, const cross_entropy& how = {});
/// Sum over samples of the mean over a sample's outputs of (output - target)^2. Both (batch, ...).
expression mean_squared_error(expression outputs, expression targets);
/// Like mean_squared_error, but of |output - target|.
expression mean_absolute_error(expression outputs, expression targets);
/// Like mean_squared_error, but of -t log s(z) - (1 - t) log(1 - s(z)). Outputs z are logits, s is
/// the sigmoid, and targets t are from 0 to 1.
expression binary_cross_entropy(expression logits, expression targets);
/// Like mean_squared_error, but of max(1 - t z, 0), with targets t of -1 or 1.
expression hinge(expression outputs, expression targets);
/// The number of rows that are correct: the logit is above 0 if the label is 1, and not above 0 if
/// the label is 0. Scalar, no gradient. logits (batch, 1), labels int32 (batch), 0 or 1; other
/// labels are wrong.
expression binary_correct(expression logits, expression labels);
/// int32 labels as numbers, in a shape with the same number of elements, for example (batch) to
/// (batch, 1). No gradient.
expression to_float(expression labels, shape dims);

// -- Layers

/// x_i / (1 - rate) with probability 1 - rate, else 0 (Srivastava et al., 2014); 0 <= rate < 1.
///
/// The choice for element i depends only on the seed of the run, on `name` and on i, its position
/// in row-major order. The gradient computes the same mask again; nothing is stored. Let
///
/// - k = stream_key(seed, {stream_key(0, name)}),
/// - m(h) be Wellons' low bias mixer: h ^= h >> 16, h *= 0x7feb352d, h ^= h >> 15,
///   h *= 0x846ca68b, h ^= h >> 16.
///
/// The element stays if m(m(0x9e3779b9 i + low half of k) ^ high half of k) >> 8 is at least
/// rate * 2^24. All arithmetic is modulo 2^32.
expression dropout(expression x, double rate, const std::string& name);
/// The same with the key of an existing dropout node, for its gradient.
expression dropout(expression x, double rate, std::uint64_t key);

enum class activation : std::uint8_t { none, relu, tanh, sigmoid, leaky_relu, gelu, silu };

/// Applies an activation. Returns x itself if there is none. silu: x / (1 + exp(-x)) (Hendrycks and
/// Gimpel, 2016; also called swish).
expression activate(expression x, activation how);

/// The initializer of weights before an activation: He-uniform before relu, leaky_relu, gelu and
/// silu, otherwise Glorot-uniform.
initializer initial_weights(activation after);

/// A dense layer with its own variables: "NAME.weight" (units, inputs) and, with `bias`,
/// "NAME.bias" (units). Weights start with initial_weights(how), biases with zeros.
expression dense_layer(expression x, const std::string& name, std::int64_t units,
                       activation how = activation::none, bool bias = true);

} // namespace troupe
