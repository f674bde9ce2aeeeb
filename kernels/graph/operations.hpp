#pragma once

#include "kernels/graph/graph.hpp"

#include <cstdint>
#include <string>

namespace troupe {

// Functions that build a graph. Each function appends one or more nodes to the graph of its
// arguments, infers the shape of the result, and returns the result. If tensors do not fit, it
// throws input_error with their names and shapes.
//
// Notation: in (R, n), n is the last dimension of a tensor. R stands for all other dimensions,
// including the batch; the tensor is treated as a matrix of rows with n elements each.

// -- Linear algebra

/// The matrix product op(a) op(b). a and b are matrices (R, n). op(x) is the transpose of x if the
/// flag is set, otherwise x. Result: (R_a, n_b) without transposes. The batch can be the first
/// dimension of the result, but not the last one.
expression matmul(expression a, expression b, bool transpose_a = false, bool transpose_b = false);
/// x (R, n) + b (n): b is added to each row.
expression add_bias(expression x, expression b);
/// x W^T + b: x (R, inputs), W (units, inputs) as in PyTorch's Linear, b (units). Result (R,
/// units).
expression dense(expression x, expression weight, expression bias);
/// x W^T.
expression dense(expression x, expression weight);

// -- Element by element: the arguments and the result have the same shape

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
/// The sign of x: -1, 0 or 1. It is the derivative of absolute. The derivative of sign is 0.
expression sign(expression x);
/// The error function: 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.
expression erf(expression x);
/// 1 - erf(x). The relative error is small even for large x, where 1 - erf(x) would cancel.
expression erfc(expression x);
/// The sine of x in radians. The result is NaN for infinite x.
expression sine(expression x);
/// The cosine of x in radians. The result is NaN for infinite x.
expression cosine(expression x);
/// The whole number next to x. Of two that are equally near, the even one. The derivative is 0.
expression round(expression x);
/// log(1 + exp(x)), without overflow.
expression softplus(expression x);
/// max(x, 0). NaN stays NaN. The derivative at 0 is 0.
expression relu(expression x);
/// x where x > 0, else slope * x. Requires slope > 0. The derivative at 0 is `slope`.
expression leaky_relu(expression x, double slope = 0.01);
/// x (1 + erf(x / sqrt(2))) / 2 (Hendrycks and Gimpel, 2016; PyTorch's default, not the
/// approximation by tanh).
expression gelu(expression x);
/// dy times the derivative of gelu at x: (1 + erf(x / sqrt(2))) / 2 + x phi(x). x is the *argument*
/// of gelu. phi is the density of the standard normal distribution.
expression gelu_gradient(expression dy, expression x);
expression tanh(expression x);
/// 1 / (1 + exp(-x)).
expression sigmoid(expression x);
/// dy where y > 0, else 0. y is the *result* of relu. A NaN in y gives NaN.
expression relu_gradient(expression dy, expression y);
/// dy where y > 0, else slope * dy. y is the result of leaky_relu.
expression leaky_relu_gradient(expression dy, expression y, double slope);
/// dy (1 - y^2). y is the result of tanh.
expression tanh_gradient(expression dy, expression y);
/// dy y (1 - y). y is the result of sigmoid.
expression sigmoid_gradient(expression dy, expression y);
/// The larger of two elements, or NaN if one of them is NaN. The larger element gets the gradient.
/// If both are equal, or if one is NaN, the element of b gets it.
expression maximum(expression a, expression b);
/// The smaller of two elements. The smaller element gets the gradient. Ties and NaN are treated as
/// in maximum.
expression minimum(expression a, expression b);
/// max(x, bound). NaN stays NaN. The derivative is 0 at the bound and for NaN.
expression at_least(expression x, double bound);
/// min(x, bound). NaN stays NaN. The derivative is 0 at the bound and for NaN.
expression at_most(expression x, double bound);
/// 1 where a > b, else 0. The result is 0 if a or b is NaN. The derivative is 0.
expression greater(expression a, expression b);
/// 1 where x > bound, else 0. The result is 0 if x is NaN. The derivative is 0.
expression above(expression x, double bound);
/// a where condition > 0, else b. The result is NaN where the condition is NaN. An element that is
/// not selected never affects the result, even if it is NaN, and its gradient is 0. The condition
/// gets no gradient.
expression select(expression condition, expression a, expression b);

/// Rounds x to float32, bfloat16 or float16 (kernels/graph/precision.hpp). Returns x itself if it
/// has this type already. The gradient of x is the gradient of the result.
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

/// Sum of all elements. The result is a scalar.
expression sum(expression x);
/// Sum over the rows: (R, n) -> (n).
expression sum_leading(expression x);
/// Sum of each row: (R, n) -> (R).
expression sum_last(expression x);
/// Repeats a scalar to a tensor of shape `dims`.
expression broadcast(expression x, shape dims);
/// (n) -> dims = (R, n): repeats x for each row.
expression broadcast_leading(expression x, shape dims);
/// (R) -> dims = (R, n): repeats each element n times.
expression broadcast_last(expression x, shape dims);

// -- Losses: scalars, *summed* over the samples
//
// Losses are sums, not means. Therefore, the losses and gradients of workers with different numbers
// of samples can simply be added. The optimizer divides by the total number of samples.

/// exp(x_i) / sum_j exp(x_j) along the last dimension. The largest x_i is subtracted first, so exp
/// does not overflow.
expression softmax(expression logits);
/// The cross-entropy of softmax(z) and the labels. Each row r of the logits z (R, classes) has one
/// label. labels: int32 (R). The loss of a row is log(sum_j exp(z_rj)) - sum_j q_rj z_rj, where
/// q_rj is 1 if j is the label of r, else 0 (see cross_entropy for other q). The loss of a sample
/// is the mean over its rows; a sample has a single row if the labels are (batch). The result is
/// the sum over samples.
///
/// If a label is outside 0..classes-1, the loss and the row's gradient are NaN. If a label is
/// ignored, the loss and the gradient of its row are 0, but the mean is still over all rows.
expression softmax_cross_entropy(expression logits, expression labels,
                                 const cross_entropy& how = {});
/// The gradient of softmax_cross_entropy with respect to the logits z: softmax(z) - q, divided by
/// the number of rows per sample. Result: (R, classes).
expression softmax_cross_entropy_gradient(expression logits, expression labels,
                                          const cross_entropy& how = {});
/// The number of rows that are classified correctly. A row is correct if its label is the class
/// with the largest logit (the first such class if several are equal), and is not the ignored
/// label. A row with a NaN is wrong. The result is a scalar without a gradient.
expression softmax_correct(expression logits, expression labels, const cross_entropy& how = {});
/// For each sample, the mean of (output - target)^2 over the outputs of the sample; then the sum
/// over samples. outputs and targets have the same shape (batch, ...).
expression mean_squared_error(expression outputs, expression targets);
/// Like mean_squared_error, but with |output - target|.
expression mean_absolute_error(expression outputs, expression targets);
/// Like mean_squared_error, but each term is -t log s(z) - (1 - t) log(1 - s(z)). The outputs z are
/// logits, s is the sigmoid, and the targets t are from 0 to 1.
expression binary_cross_entropy(expression logits, expression targets);
/// Like mean_squared_error, but each term is max(1 - t z, 0). The outputs are z, and the targets t
/// are -1 or 1.
expression hinge(expression outputs, expression targets);
/// The number of samples that are classified correctly. If the label is 1, the logit must be above
/// 0. If the label is 0, the logit must not be above 0. A sample with another label is wrong.
/// logits: (batch, 1). labels: int32 (batch). The result is a scalar without a gradient.
expression binary_correct(expression logits, expression labels);
/// Converts int32 labels to floats of shape `dims`, which has the same number of elements, for
/// example (batch) to (batch, 1). No gradient.
expression to_float(expression labels, shape dims);

// -- Layers

/// Dropout: each element becomes x_i / (1 - rate) with probability 1 - rate, else 0 (Srivastava et
/// al., 2014). Requires 0 <= rate < 1.
///
/// Whether an element is kept depends only on the seed of the run, on `name`, and on the position i
/// of the element in row-major order. The mask is not stored: the gradient computes the same mask
/// again. Let
///
/// - k = stream_key(seed, {stream_key(0, name)}),
/// - m(h) be Wellons' low bias mixer: h ^= h >> 16, h *= 0x7feb352d, h ^= h >> 15, h *= 0x846ca68b,
///   h ^= h >> 16.
///
/// Element i is kept if m(m(0x9e3779b9 i + low half of k) ^ high half of k) >> 8 is at least rate *
/// 2^24. All arithmetic is modulo 2^32.
expression dropout(expression x, double rate, const std::string& name);
/// Dropout with the key of an existing dropout node. It has the same mask as that node. Used for
/// the gradient of that node.
expression dropout(expression x, double rate, std::uint64_t key);

enum class activation : std::uint8_t { none, relu, tanh, sigmoid, leaky_relu, gelu, silu };

/// Applies an activation. Returns x itself for activation::none. silu: x / (1 + exp(-x)) (Hendrycks
/// and Gimpel, 2016; also called swish).
expression activate(expression x, activation how);

/// The initializer for the weights of a layer with this activation: He-uniform for relu,
/// leaky_relu, gelu and silu, otherwise Glorot-uniform.
initializer initial_weights(activation after);

/// A dense layer with its own variables: "NAME.weight" (units, inputs) and, if `bias` is true,
/// "NAME.bias" (units). Weights start with initial_weights(how), biases with zeros.
expression dense_layer(expression x, const std::string& name, std::int64_t units,
                       activation how = activation::none, bool bias = true);

} // namespace troupe
