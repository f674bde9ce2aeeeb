#include "kernels/graph/operations.hpp"

#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/node_builder.hpp"
#include "kernels/graph/sequence_operations.hpp"
#include "kernels/random.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace troupe {

namespace {

[[noreturn]] void misfit(operation op, expression a, expression b, const std::string& expected) {
  refuse(op, describe(a) + " and " + describe(b) + " do not fit: " + expected);
}

void check_rank(operation op, expression x, std::size_t least) {
  check_float(op, x);
  if (x.shape().rank() < least)
    refuse(op, describe(x) + " has fewer than " + std::to_string(least) + " dimensions");
}

expression append(operation op, std::initializer_list<expression> inputs, shape dims,
                  double factor = 1) {
  auto x = make_node(op, std::move(dims));
  x.factor = factor;
  return append(std::move(x), inputs);
}

expression unary(operation op, expression x, double factor = 1) {
  check_float(op, x);
  return append(op, {x}, x.shape(), factor);
}

expression binary(operation op, expression a, expression b, double factor = 1) {
  check_float(op, a);
  check_float(op, b);
  if (a.shape() != b.shape())
    misfit(op, a, b, "both must have the same shape");
  return append(op, {a, b}, a.shape(), factor);
}

/// All dimensions except the last.
shape leading(const shape& x) {
  auto extents = x.extents();
  if (!extents.empty())
    extents.pop_back();
  return shape(std::move(extents));
}

/// The number of rows of a matrix (R, n) of this shape, or `batch` if it depends on the number of
/// samples.
std::int64_t rows_of(const shape& x) {
  if (x.rank() < 2)
    return x.has_batch() ? shape::batch : 1;
  return x.has_batch() ? shape::batch : static_cast<std::int64_t>(leading(x).elements());
}

shape labels_of(operation op, expression logits, expression labels) {
  check_rank(op, logits, 2);
  if (labels.node().type != dtype::int32 || labels.node().op != operation::placeholder)
    throw input_error(std::string(to_string(op)) + ": labels " + describe(labels) + " are "
                      + std::string(to_string(labels.node().type))
                      + "; expected an int32 input of the graph");
  auto expected = leading(logits.shape());
  if (labels.shape() != expected)
    misfit(op, logits, labels, "the labels must have shape " + to_string(expected));
  return expected;
}

} // namespace

expression matmul(expression a, expression b, bool transpose_a, bool transpose_b) {
  constexpr auto op = operation::matmul;
  check_rank(op, a, 2);
  check_rank(op, b, 2);
  const auto rows_a = rows_of(a.shape());
  const auto rows_b = rows_of(b.shape());
  const auto inner_a = transpose_a ? rows_a : a.shape().last();
  const auto inner_b = transpose_b ? b.shape().last() : rows_b;
  // a^T b sums over the rows of both matrices. Then the dimensions of their rows must be equal.
  const bool same_rows = !transpose_a || transpose_b || leading(a.shape()) == leading(b.shape());
  if (inner_a != inner_b || !same_rows)
    misfit(op, a, b,
           "the " + std::string(transpose_a ? "rows" : "last dimension")
             + " of the first must equal the " + (transpose_b ? "last dimension" : "rows")
             + " of the second");
  const auto columns = transpose_b ? rows_b : b.shape().last();
  if (columns == shape::batch)
    misfit(op, a, b, "the batch can only be the first dimension of the result");
  auto dims = transpose_a ? std::vector{a.shape().last()} : leading(a.shape()).extents();
  dims.push_back(columns);
  auto x = make_node(op, shape(std::move(dims)));
  x.transpose_a = transpose_a;
  x.transpose_b = transpose_b;
  return append(std::move(x), {a, b});
}

expression add_bias(expression x, expression b) {
  constexpr auto op = operation::add_bias;
  check_rank(op, x, 1);
  check_rank(op, b, 1);
  if (b.shape() != shape{x.shape().last()})
    misfit(op, x, b, "the bias must have shape " + to_string(shape{x.shape().last()}));
  return append(op, {x, b}, x.shape());
}

expression dense(expression x, expression weight, expression bias) {
  return add_bias(dense(x, weight), bias);
}

expression dense(expression x, expression weight) {
  return matmul(x, weight, false, true);
}

expression add(expression a, expression b) {
  return binary(operation::add, a, b);
}

expression subtract(expression a, expression b) {
  return binary(operation::subtract, a, b);
}

expression multiply(expression a, expression b) {
  return binary(operation::multiply, a, b);
}

expression divide(expression a, expression b) {
  return binary(operation::divide, a, b);
}

expression scale(expression x, double factor) {
  return unary(operation::scale, x, factor);
}

expression offset(expression x, double summand) {
  return unary(operation::offset, x, summand);
}

expression exp(expression x) {
  return unary(operation::exp, x);
}

expression log(expression x) {
  return unary(operation::log, x);
}

expression square_root(expression x) {
  return unary(operation::square_root, x);
}

expression absolute(expression x) {
  return unary(operation::absolute, x);
}

expression sign(expression x) {
  return unary(operation::sign, x);
}

expression erf(expression x) {
  return unary(operation::erf, x);
}

expression erfc(expression x) {
  return unary(operation::erfc, x);
}

expression sine(expression x) {
  return unary(operation::sine, x);
}

expression cosine(expression x) {
  return unary(operation::cosine, x);
}

expression round(expression x) {
  return unary(operation::round, x);
}

expression softplus(expression x) {
  return unary(operation::softplus, x);
}

expression relu(expression x) {
  return unary(operation::relu, x);
}

expression tanh(expression x) {
  return unary(operation::tanh, x);
}

expression sigmoid(expression x) {
  return unary(operation::sigmoid, x);
}

expression leaky_relu(expression x, double slope) {
  if (!(slope > 0))
    refuse(operation::leaky_relu,
           "the slope is " + std::to_string(slope) + "; expected a number above 0");
  return unary(operation::leaky_relu, x, slope);
}

expression gelu(expression x) {
  return unary(operation::gelu, x);
}

expression leaky_relu_gradient(expression dy, expression y, double slope) {
  return binary(operation::leaky_relu_gradient, dy, y, slope);
}

expression gelu_gradient(expression dy, expression x) {
  return binary(operation::gelu_gradient, dy, x);
}

expression relu_gradient(expression dy, expression y) {
  return binary(operation::relu_gradient, dy, y);
}

expression tanh_gradient(expression dy, expression y) {
  return binary(operation::tanh_gradient, dy, y);
}

expression sigmoid_gradient(expression dy, expression y) {
  return binary(operation::sigmoid_gradient, dy, y);
}

namespace {

expression bounded(operation op, expression x, double bound) {
  if (std::isnan(bound))
    refuse(op, "the bound of " + describe(x) + " is NaN; expected a number");
  return unary(op, x, bound);
}

} // namespace

expression maximum(expression a, expression b) {
  return binary(operation::maximum, a, b);
}

expression minimum(expression a, expression b) {
  return binary(operation::minimum, a, b);
}

expression at_least(expression x, double bound) {
  return bounded(operation::at_least, x, bound);
}

expression at_most(expression x, double bound) {
  return bounded(operation::at_most, x, bound);
}

expression greater(expression a, expression b) {
  return binary(operation::greater, a, b);
}

expression above(expression x, double bound) {
  return bounded(operation::above, x, bound);
}

expression select(expression condition, expression a, expression b) {
  constexpr auto op = operation::select;
  for (auto x : {condition, a, b}) {
    check_float(op, x);
    if (x.shape() != condition.shape())
      misfit(op, condition, x, "all must have the same shape");
  }
  return append(op, {condition, a, b}, condition.shape());
}

expression cast(expression x, dtype type) {
  constexpr auto op = operation::cast;
  check_float(op, x);
  check_not_sparse(op, x);
  if (type != dtype::float32 && !is_narrow(type))
    refuse(op,
           describe(x) + " to " + std::string(to_string(type))
             + "; expected float32, bfloat16 or float16");
  return x.owner().casted(x, type);
}

expression sum(expression x) {
  check_float(operation::sum, x);
  return append(operation::sum, {x}, {});
}

expression sum_leading(expression x) {
  check_rank(operation::sum_leading, x, 1);
  return append(operation::sum_leading, {x}, {x.shape().last()});
}

expression sum_last(expression x) {
  check_rank(operation::sum_last, x, 1);
  return append(operation::sum_last, {x}, leading(x.shape()));
}

namespace {

expression broadcast_to(operation op, expression x, const shape& dims, const shape& expected) {
  check_float(op, x);
  if (x.shape() != expected)
    refuse(op, describe(x) + " to " + to_string(dims) + ": expected shape " + to_string(expected));
  return append(op, {x}, dims);
}

} // namespace

expression broadcast(expression x, shape dims) {
  return broadcast_to(operation::broadcast, x, dims, {});
}

expression broadcast_leading(expression x, shape dims) {
  return broadcast_to(operation::broadcast_leading, x, dims, {dims.last()});
}

expression broadcast_last(expression x, shape dims) {
  return broadcast_to(operation::broadcast_last, x, dims, leading(dims));
}

expression softmax(expression logits) {
  check_rank(operation::softmax, logits, 1);
  return append(operation::softmax, {logits}, logits.shape());
}

namespace {

/// The factor f for which f * sum(x) is a loss: the mean over the outputs of each sample, summed
/// over the samples.
double mean_factor(const shape& x) {
  const auto per_sample = std::max<std::size_t>(x.elements(1), 1);
  const auto samples =
    x.has_batch() || x.rank() == 0 ? 1.0 : static_cast<double>(std::max<std::int64_t>(x[0], 1));
  return samples / static_cast<double>(per_sample);
}

expression classify(operation op, expression logits, expression labels, const cross_entropy& how,
                    shape dims) {
  const auto rows = labels_of(op, logits, labels);
  if (!(how.smoothing >= 0 && how.smoothing < 1))
    refuse(op,
           "label smoothing " + std::to_string(how.smoothing)
             + "; expected a number from 0 to less than 1");
  auto x = make_node(op, std::move(dims));
  x.factor = mean_factor(rows);
  x.labels = how;
  return append(std::move(x), {logits, labels});
}

} // namespace

expression softmax_cross_entropy(expression logits, expression labels, const cross_entropy& how) {
  return classify(operation::softmax_cross_entropy, logits, labels, how, {});
}

expression softmax_cross_entropy_gradient(expression logits, expression labels,
                                          const cross_entropy& how) {
  return classify(operation::softmax_cross_entropy_gradient, logits, labels, how, logits.shape());
}

expression softmax_correct(expression logits, expression labels, const cross_entropy& how) {
  return classify(operation::softmax_correct, logits, labels, how, {});
}

expression mean_squared_error(expression outputs, expression targets) {
  constexpr auto op = operation::squared_error;
  check_rank(op, outputs, 1);
  check_float(op, targets);
  if (outputs.shape() != targets.shape())
    misfit(op, outputs, targets, "outputs and targets must have the same shape");
  return append(op, {outputs, targets}, {}, mean_factor(outputs.shape()));
}

expression mean_absolute_error(expression outputs, expression targets) {
  return scale(sum(absolute(outputs - targets)), mean_factor(outputs.shape()));
}

// Computes each term as (1 - t) z + log(1 + exp(-z)). It equals the formula in the header, but is
// also accurate for large |z|.
expression binary_cross_entropy(expression logits, expression targets) {
  const auto opposite = scale(logits, -1);
  const auto losses = softplus(opposite) + offset(scale(targets, -1), 1) * logits;
  return scale(sum(losses), mean_factor(logits.shape()));
}

expression hinge(expression outputs, expression targets) {
  const auto margins = relu(offset(scale(outputs * targets, -1), 1));
  return scale(sum(margins), mean_factor(outputs.shape()));
}

expression binary_correct(expression logits, expression labels) {
  constexpr auto op = operation::binary_correct;
  const auto rows = labels_of(op, logits, labels);
  if (logits.shape().last() != 1)
    misfit(op, logits, labels, "one logit per label");
  return append(op, {logits, labels}, {});
}

expression to_float(expression labels, shape dims) {
  constexpr auto op = operation::to_float;
  if (labels.node().type != dtype::int32)
    refuse(op, describe(labels) + " is not int32");
  const auto same =
    dims.has_batch() == labels.shape().has_batch() && dims.elements() == labels.shape().elements();
  if (!same)
    refuse(op,
           describe(labels) + " to " + to_string(dims) + ": expected the same number of elements");
  // No operation slices or reshapes integers. Therefore, if the labels are a slice or reshape of a
  // tensor, the whole tensor is converted, and the floats are sliced or reshaped.
  if (const auto n = labels.node(); n.op == operation::slice) {
    const expression all{labels.owner(), n.inputs[0]};
    const auto begin = static_cast<std::int64_t>(n.axes[1]);
    return reshape(slice(to_float(all, all.shape()), n.axes[0], begin, begin + n.shape[n.axes[0]]),
                   dims);
  }
  if (const auto n = labels.node(); n.op == operation::reshape) {
    const expression all{labels.owner(), n.inputs[0]};
    return reshape(to_float(all, all.shape()), dims);
  }
  return append(op, {labels}, std::move(dims));
}

expression dropout(expression x, double rate, const std::string& name) {
  return dropout(x, rate, stream_key(0, name));
}

expression dropout(expression x, double rate, std::uint64_t key) {
  constexpr auto op = operation::dropout;
  check_float(op, x);
  if (!(rate >= 0 && rate < 1))
    refuse(op, "a rate of " + std::to_string(rate) + "; expected a number from 0 to less than 1");
  auto result = make_node(op, x.shape());
  result.factor = rate;
  result.key = key;
  return append(std::move(result), {x});
}

expression activate(expression x, activation how) {
  switch (how) {
  case activation::none:
    return x;
  case activation::relu:
    return relu(x);
  case activation::tanh:
    return tanh(x);
  case activation::sigmoid:
    return sigmoid(x);
  case activation::leaky_relu:
    return leaky_relu(x);
  case activation::gelu:
    return gelu(x);
  case activation::silu:
    return multiply(x, sigmoid(x));
  }
  return x;
}

initializer initial_weights(activation after) {
  const bool rectifies = after == activation::relu || after == activation::leaky_relu
    || after == activation::gelu || after == activation::silu;
  return rectifies ? initializer::he_uniform() : initializer::glorot_uniform();
}

expression dense_layer(expression x, const std::string& name, std::int64_t units, activation how,
                       bool bias) {
  if (units < 1)
    throw input_error("layer \"" + name + "\" has " + std::to_string(units)
                      + " units; expected at least 1");
  check_rank(operation::matmul, x, 2);
  auto& owner = x.owner();
  auto y =
    dense(x, owner.variable(name + ".weight", {units, x.shape().last()}, initial_weights(how)));
  if (bias)
    y = add_bias(y, owner.variable(name + ".bias", {units}));
  return activate(y, how);
}

} // namespace troupe
