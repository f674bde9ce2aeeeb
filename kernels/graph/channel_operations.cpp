#include "kernels/graph/channel_operations.hpp"

#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/node_builder.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"

namespace troupe {

namespace {

/// The number of channels of x (batch, C, ...).
std::int64_t channels_of(operation op, expression x) {
  check_float(op, x);
  if (x.shape().rank() < 2 || !x.shape().has_batch() || x.shape().elements(1) == 0)
    refuse(op, describe(x) + " is not of the form (batch, channels, ...)");
  return x.shape()[1];
}

void check_moments(operation op, expression x, expression moments) {
  if (moments.shape() != shape{2, channels_of(op, x)})
    refuse(op, describe(x) + " and " + describe(moments) + ": expected moments of its channels");
}

expression of_moments(operation op, expression moments, double factor) {
  if (moments.shape().rank() != 2 || moments.shape()[0] != 2)
    refuse(op, describe(moments) + ": expected moments (2, channels)");
  auto x = make_node(op, {moments.shape()[1]});
  x.factor = factor;
  x.key = moments.node().key;
  return append(std::move(x), {moments});
}

} // namespace

expression multiply_channels(expression x, expression g) {
  constexpr auto op = operation::multiply_channels;
  if (g.shape() != shape{channels_of(op, x)})
    refuse(op, describe(x) + " and " + describe(g) + ": expected a factor per channel");
  return append(make_node(op, x.shape()), {x, g});
}

expression channel_moments(expression x, bool all_workers) {
  constexpr auto op = operation::channel_moments;
  auto result = make_node(op, {2, channels_of(op, x)});
  result.key = all_workers ? 1 : 0;
  return append(std::move(result), {x});
}

expression normalize_channels(expression x, expression moments, double epsilon) {
  constexpr auto op = operation::normalize_channels;
  check_moments(op, x, moments);
  if (!(epsilon > 0))
    refuse(op, "epsilon is " + std::to_string(epsilon) + "; expected a number above 0");
  auto result = make_node(op, x.shape());
  result.factor = epsilon;
  return append(std::move(result), {x, moments});
}

expression normalize_channels_gradient(expression dy, expression x, expression moments,
                                       double epsilon) {
  constexpr auto op = operation::normalize_channels_gradient;
  check_moments(op, x, moments);
  if (dy.shape() != x.shape())
    refuse(op, describe(dy) + " and " + describe(x) + " have different shapes");
  auto result = make_node(op, x.shape());
  result.factor = epsilon;
  result.key = moments.node().key;
  return append(std::move(result), {dy, x, moments});
}

expression summed_mean(expression moments) {
  return of_moments(operation::summed_mean, moments, 1);
}

expression summed_variance(expression moments, std::int64_t positions) {
  return of_moments(operation::summed_variance, moments, static_cast<double>(positions));
}

expression batch_norm(expression x, const batch_norm_variables& variables, double epsilon,
                      bool all_workers) {
  const auto frozen = [&](expression y) {
    const auto& n = y.node();
    return n.op == operation::variable
      && x.owner().parameters().entries()[n.index].kind == parameter_kind::frozen;
  };
  if (frozen(variables.running_mean) != frozen(variables.running_variance))
    throw input_error("only one of \"" + variables.running_mean.name() + "\" and \""
                      + variables.running_variance.name() + "\" is frozen; freeze both or neither");
  if (frozen(variables.running_mean))
    return batch_norm_testing(x, variables, epsilon);
  const auto positions = static_cast<std::int64_t>(x.shape().elements(1))
    / channels_of(operation::normalize_channels, x);
  const auto moments = channel_moments(x, all_workers);
  auto& owner = x.owner();
  owner.update_state(variables.running_mean, summed_mean(moments));
  owner.update_state(variables.running_variance, summed_variance(moments, positions));
  const auto normal = normalize_channels(x, moments, epsilon);
  return add_channel_bias(multiply_channels(normal, variables.gain), variables.bias);
}

expression group_norm(expression x, expression gain, expression bias, std::int64_t groups,
                      double epsilon) {
  const auto dims = x.shape();
  const auto channels = channels_of(operation::normalize_rows, x);
  if (groups < 1 || channels % groups != 0)
    throw input_error("group_norm: " + std::to_string(groups) + " groups do not divide the "
                      + std::to_string(channels) + " channels of " + describe(x));
  const auto size = static_cast<std::int64_t>(dims.elements(1)) / groups;
  const auto normal = normalize_rows(reshape(x, {shape::batch, groups, size}), epsilon);
  return add_channel_bias(multiply_channels(reshape(normal, dims), gain), bias);
}

// The mean is subtracted first. The formula x * factor + (bias - mean * factor) would save an
// addition. But if the mean is large, that formula would lose the digits in which x differs from
// the mean. If x comes from a convolution without a bias, the plan can compute the subtraction as
// the bias of the convolution.
expression batch_norm_testing(expression x, const batch_norm_variables& variables, double epsilon) {
  const auto factor = variables.gain / square_root(offset(variables.running_variance, epsilon));
  const auto centered = add_channel_bias(x, scale(variables.running_mean, -1));
  return add_channel_bias(multiply_channels(centered, factor), variables.bias);
}

} // namespace troupe
