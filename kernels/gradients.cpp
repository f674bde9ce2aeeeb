#include "kernels/gradients.hpp"

#include "kernels/error.hpp"
#include "kernels/image_operations.hpp"
#include "kernels/operations.hpp"
#include "kernels/sequence_operations.hpp"

#include <numbers>
#include <optional>

namespace troupe {

namespace {

/// Reverse mode: walks the nodes from y backwards and asks each for its contribution to the
/// gradients of its inputs.
class reverse_mode {
public:
  reverse_mode(expression y, std::span<const expression> xs)
    : graph_(y.owner()), wanted_(y.id() + 1, false), gradient_(y.id() + 1) {
    for (auto x : xs)
      if (x.id() < wanted_.size())
        wanted_[x.id()] = true;
    // Nodes that depend on some x; only they get a gradient.
    for (std::uint32_t id = 0; id < wanted_.size(); ++id)
      for (auto input : graph_.at(id).inputs)
        wanted_[id] = wanted_[id] || wanted_[input];
    if (wanted_[y.id()])
      gradient_[y.id()] = graph_.constant(1);
    for (auto id = y.id() + 1; id-- > 0;)
      if (gradient_[id])
        visit(id);
  }

  expression of(expression x) {
    if (x.id() < gradient_.size() && gradient_[x.id()])
      return *gradient_[x.id()];
    return graph_.constant(0, x.shape());
  }

private:
  bool wants(std::uint32_t id) const { return wanted_[id]; }

  void give(std::uint32_t id, expression g) {
    auto& total = gradient_[id];
    total = total ? add(*total, g) : g;
  }

  /// Whether g is the constant 1: the common case, a loss that is not combined with others.
  static bool is_one(expression g) {
    const auto& n = g.node();
    return n.op == operation::constant && n.values.size() == 1 && n.values[0] == 1;
  }

  /// x times the scalar g.
  static expression times(expression x, expression g) {
    return is_one(g) ? x : multiply(broadcast(g, x.shape()), x);
  }

  /// Gradient of softmax: y (g - sum_j g_j y_j), y its result.
  static expression softmax_gradient(expression g, expression y) {
    return multiply(y, subtract(g, broadcast_last(sum_last(multiply(g, y)), y.shape())));
  }

  void visit(std::uint32_t id);
  void visit_matmul(const node& n, expression g);
  void visit_elementwise(const node& n, expression y, expression g);
  void visit_reduction(const node& n, expression g);
  void visit_loss(const node& n, expression g);
  void visit_image(const node& n, expression g);
  void visit_sequence(const node& n, expression y, expression g);
  void visit_concat(const node& n, expression g);
  expression again(const node& n, expression g);
  void visit_recurrent(const node& n, expression y, expression g);

  expression at(std::uint32_t id) { return {graph_, id}; }

  graph& graph_;
  std::vector<bool> wanted_;
  std::vector<std::optional<expression>> gradient_;
};

void reverse_mode::visit_matmul(const node& n, expression g) {
  const auto a = at(n.inputs[0]);
  const auto b = at(n.inputs[1]);
  const bool ta = n.transpose_a;
  const bool tb = n.transpose_b;
  // C = op(a) op(b): d op(a) = g op(b)^T, d op(b) = op(a)^T g, and transposed again where a or b
  // was. The gradient of the inputs comes first: after the second one, the weights are not read any
  // more.
  if (wants(a.id()))
    give(a.id(), ta ? matmul(b, g, tb, true) : matmul(g, b, false, !tb));
  if (wants(b.id()))
    give(b.id(), tb ? matmul(g, a, true, ta) : matmul(a, g, !ta, false));
}

void reverse_mode::visit_elementwise(const node& n, expression y, expression g) {
  const auto a = n.inputs[0];
  const auto b = n.inputs.size() > 1 ? n.inputs[1] : a;
  switch (n.op) {
  case operation::scale:
    give(a, scale(g, n.factor));
    break;
  case operation::offset:
    give(a, g);
    break;
  case operation::exp:
    give(a, multiply(g, y));
    break;
  case operation::log:
    give(a, divide(g, at(a)));
    break;
  case operation::square_root:
    give(a, divide(scale(g, 0.5), y));
    break;
  case operation::absolute:
    give(a, multiply(g, sign(at(a))));
    break;
  case operation::sign:
    break;
  case operation::erf:
    give(a,
         multiply(g, scale(exp(scale(multiply(at(a), at(a)), -1)), 2 * std::numbers::inv_sqrtpi)));
    break;
  case operation::softplus:
    give(a, multiply(g, sigmoid(at(a))));
    break;
  case operation::relu:
    give(a, relu_gradient(g, y));
    break;
  case operation::leaky_relu:
    give(a, leaky_relu_gradient(g, y, n.factor));
    break;
  case operation::tanh:
    give(a, tanh_gradient(g, y));
    break;
  case operation::sigmoid:
    give(a, sigmoid_gradient(g, y));
    break;
  case operation::add:
    if (wants(a))
      give(a, g);
    if (wants(b))
      give(b, g);
    break;
  case operation::subtract:
    if (wants(a))
      give(a, g);
    if (wants(b))
      give(b, scale(g, -1));
    break;
  case operation::multiply:
    if (wants(a))
      give(a, multiply(g, at(b)));
    if (wants(b))
      give(b, multiply(g, at(a)));
    break;
  case operation::divide:
    if (wants(a))
      give(a, divide(g, at(b)));
    if (wants(b))
      give(b, scale(divide(multiply(g, y), at(b)), -1));
    break;
  case operation::leaky_relu_gradient: // linear in dy; a step function of y
    if (wants(a))
      give(a, leaky_relu_gradient(g, at(b), n.factor));
    break;
  case operation::relu_gradient: // linear in dy; a step function of y
    if (wants(a))
      give(a, relu_gradient(g, at(b)));
    break;
  case operation::tanh_gradient: // dy (1 - y^2)
    if (wants(a))
      give(a, tanh_gradient(g, at(b)));
    if (wants(b))
      give(b, scale(multiply(multiply(g, at(a)), at(b)), -2));
    break;
  case operation::sigmoid_gradient: // dy (y - y^2)
    if (wants(a))
      give(a, sigmoid_gradient(g, at(b)));
    if (wants(b)) {
      auto p = multiply(g, at(a));
      give(b, subtract(p, scale(multiply(p, at(b)), 2)));
    }
    break;
  default:
    break;
  }
}

void reverse_mode::visit_reduction(const node& n, expression g) {
  const auto x = n.inputs[0];
  const auto dims = graph_.at(x).shape;
  switch (n.op) {
  case operation::sum:
    give(x, broadcast(g, dims));
    break;
  case operation::sum_leading:
    give(x, broadcast_leading(g, dims));
    break;
  case operation::sum_last:
    give(x, broadcast_last(g, dims));
    break;
  case operation::broadcast:
    give(x, sum(g));
    break;
  case operation::broadcast_leading:
    give(x, sum_leading(g));
    break;
  case operation::broadcast_last:
    give(x, sum_last(g));
    break;
  default:
    break;
  }
}

void reverse_mode::visit_loss(const node& n, expression g) {
  const auto a = at(n.inputs[0]);
  const auto b = at(n.inputs[1]);
  switch (n.op) {
  case operation::softmax_cross_entropy:
    give(a.id(), times(softmax_cross_entropy_gradient(a, b), g));
    break;
  case operation::softmax_cross_entropy_gradient:
    give(a.id(), softmax_gradient(g, softmax(a)));
    break;
  case operation::squared_error: // factor * sum (a - b)^2
    if (wants(a.id()))
      give(a.id(), times(scale(subtract(a, b), 2 * n.factor), g));
    if (wants(b.id()))
      give(b.id(), times(scale(subtract(b, a), 2 * n.factor), g));
    break;
  default:
    break;
  }
}

void reverse_mode::visit_image(const node& n, expression g) {
  const auto a = at(n.inputs[0]);
  const auto b = n.inputs.size() > 1 ? at(n.inputs[1]) : a;
  const auto& how = n.window;
  // The gradient of the inputs comes first, as in visit_matmul.
  switch (n.op) {
  case operation::conv2d:
    if (wants(a.id()))
      give(a.id(), conv2d_input_gradient(g, b, how, a.shape()));
    if (wants(b.id()))
      give(b.id(), conv2d_weight_gradient(a, g, how));
    break;
  case operation::conv2d_input_gradient: // linear in dy and in w
    if (wants(a.id()))
      give(a.id(), conv2d(g, b, how));
    if (wants(b.id()))
      give(b.id(), conv2d_weight_gradient(g, a, how));
    break;
  case operation::conv2d_weight_gradient: // linear in x and in dy
    if (wants(a.id()))
      give(a.id(), conv2d_input_gradient(b, g, how, a.shape()));
    if (wants(b.id()))
      give(b.id(), conv2d(a, g, how));
    break;
  case operation::add_channel_bias:
    if (wants(b.id()))
      give(b.id(), sum_channels(g));
    if (wants(a.id()))
      give(a.id(), g);
    break;
  case operation::sum_channels:
    give(a.id(), broadcast_channels(g, a.shape()));
    break;
  case operation::broadcast_channels:
    give(a.id(), sum_channels(g));
    break;
  case operation::max_pool_select: // linear in v; a step function of x
    if (wants(a.id()))
      give(a.id(), max_pool_gradient(g, b, how));
    break;
  case operation::max_pool_gradient: // linear in dy
    if (wants(a.id()))
      give(a.id(), max_pool_select(g, b, how));
    break;
  case operation::average_pool:
    give(a.id(), average_pool_gradient(g, how, a.shape()));
    break;
  case operation::average_pool_gradient:
    give(a.id(), average_pool(g, how));
    break;
  case operation::reshape:
    give(a.id(), reshape(g, a.shape()));
    break;
  default:
    break;
  }
}

void reverse_mode::visit_concat(const node& n, expression g) {
  std::int64_t begin = 0;
  for (auto input : n.inputs) {
    const auto extent = graph_.at(input).shape[n.axes[0]];
    if (wants(input))
      give(input, slice(g, n.axes[0], begin, begin + extent));
    begin += extent;
  }
}

/// Through time: the gradient of what the activations are applied to, for all steps at once; the
/// rest are products.
void reverse_mode::visit_recurrent(const node& n, expression y, expression g) {
  const auto z = at(n.inputs[0]);
  const auto w = at(n.inputs[1]);
  const auto hidden = w.shape().last();
  const auto stored = y.shape().last();
  const auto dh = slice(g, 2, stored - hidden, stored);
  const auto d = recurrent_gradient(dh, y, w, n.cell);
  // Of what came in by h_{t-1} w^T + b; gru multiplies that of n by r.
  const auto recurrent = n.cell == cell::gru
    ? concat({slice(d, 2, 0, 2 * hidden), slice(d, 2, 3 * hidden, 4 * hidden)}, 2)
    : d;
  if (wants(z.id()))
    give(z.id(), n.cell == cell::gru ? slice(d, 2, 0, 3 * hidden) : d);
  if (wants(w.id())) {
    const auto h = slice(y, 2, stored - hidden, stored);
    const auto before = place(slice(h, 1, 0, h.shape()[1] - 1), 1, 1, h.shape());
    give(w.id(), matmul(recurrent, before, true));
  }
  if (n.inputs.size() > 2 && wants(n.inputs[2]))
    give(n.inputs[2], sum_leading(recurrent));
}

void reverse_mode::visit_sequence(const node& n, expression y, expression g) {
  const auto a = at(n.inputs[0]);
  const auto b = n.inputs.size() > 1 ? at(n.inputs[1]) : a;
  switch (n.op) {
  case operation::transpose: {
    std::vector<std::size_t> back(n.axes.size());
    for (std::size_t i = 0; i < back.size(); ++i)
      back[n.axes[i]] = i;
    give(a.id(), transpose(g, back));
    break;
  }
  case operation::slice:
    give(a.id(), place(g, n.axes[0], static_cast<std::int64_t>(n.axes[1]), a.shape()));
    break;
  case operation::place: {
    const auto begin = static_cast<std::int64_t>(n.axes[1]);
    give(a.id(), slice(g, n.axes[0], begin, begin + a.shape()[n.axes[0]]));
    break;
  }
  case operation::concat:
    visit_concat(n, g);
    break;
  case operation::batched_matmul: { // as visit_matmul
    const bool ta = n.transpose_a;
    const bool tb = n.transpose_b;
    if (wants(a.id()))
      give(a.id(), ta ? batched_matmul(b, g, tb, true) : batched_matmul(g, b, false, !tb));
    if (wants(b.id()))
      give(b.id(), tb ? batched_matmul(g, a, true, ta) : batched_matmul(a, g, !ta, false));
    break;
  }
  case operation::multiply_rows:
    if (wants(a.id()))
      give(a.id(), multiply_rows(g, b));
    if (wants(b.id()))
      give(b.id(), sum_leading(multiply(g, a)));
    break;
  case operation::embedding:
    give(a.id(), embedding_gradient(g, b, a.shape()[0]));
    break;
  case operation::embedding_gradient:
    give(a.id(), embedding(g, b));
    break;
  case operation::normalize_rows:
    give(a.id(), normalize_rows_gradient(g, a, n.factor));
    break;
  case operation::normalize_rows_gradient:
    // Linear in dy, and its own adjoint.
    if (wants(a.id()))
      give(a.id(), normalize_rows_gradient(g, b, n.factor));
    if (wants(b.id()))
      give(b.id(), again(n, g));
    break;
  case operation::causal_softmax:
    give(a.id(), softmax_gradient(g, y));
    break;
  case operation::recurrent:
    visit_recurrent(n, y, g);
    break;
  default:
    throw input_error("gradients: \"" + n.name
                      + "\" is a gradient of a recurrent layer, which "
                        "cannot be differentiated again");
  }
}

/// d sum(g * normalize_rows_gradient(dy, x)) / dx, by way of its formula in simpler operations.
expression reverse_mode::again(const node& n, expression g) {
  const auto x = at(n.inputs[1]);
  const auto dy = stop_gradient(at(n.inputs[0]));
  const auto& dims = x.shape();
  const double share = 1.0 / static_cast<double>(dims.last());
  const auto mean = [&](expression v) { return broadcast_last(scale(sum_last(v), share), dims); };
  const auto centered = x - mean(x);
  const auto deviation = square_root(offset(mean(centered * centered), n.factor));
  const auto y = centered / deviation;
  const auto dx = (dy - mean(dy) - y * mean(dy * y)) / deviation;
  const std::vector<expression> by{x};
  return gradients(sum(dx * stop_gradient(g)), by)[0];
}

void reverse_mode::visit(std::uint32_t id) {
  // A copy: appending nodes moves them.
  const node n = graph_.at(id);
  const auto g = *gradient_[id];
  switch (n.op) {
  case operation::placeholder:
  case operation::variable:
  case operation::constant:
  case operation::softmax_correct:
  case operation::binary_correct:
  case operation::to_float:
  case operation::stop_gradient:
    break;
  case operation::matmul:
    visit_matmul(n, g);
    break;
  case operation::add_bias:
    if (wants(n.inputs[1]))
      give(n.inputs[1], sum_leading(g));
    if (wants(n.inputs[0]))
      give(n.inputs[0], g);
    break;
  case operation::softmax:
    give(n.inputs[0], softmax_gradient(g, at(id)));
    break;
  case operation::softmax_cross_entropy:
  case operation::softmax_cross_entropy_gradient:
  case operation::squared_error:
    visit_loss(n, g);
    break;
  case operation::sum:
  case operation::sum_leading:
  case operation::sum_last:
  case operation::broadcast:
  case operation::broadcast_leading:
  case operation::broadcast_last:
    visit_reduction(n, g);
    break;
  default:
    if (elementwise_arity(n.op) > 0)
      visit_elementwise(n, at(id), g);
    else if (n.op >= operation::transpose && n.op <= operation::recurrent_gradient)
      visit_sequence(n, at(id), g);
    else
      visit_image(n, g);
    break;
  }
}

} // namespace

std::vector<expression> gradients(expression y, std::span<const expression> xs) {
  if (!y.shape().extents().empty())
    throw input_error("gradients: \"" + y.name() + "\" has shape " + to_string(y.shape())
                      + "; only a scalar can be differentiated");
  for (auto x : xs)
    if (!x.valid() || &x.owner() != &y.owner())
      throw input_error("gradients: \"" + y.name() + "\" and what it is to be differentiated by "
                        + "belong to different graphs");
  reverse_mode mode(y, xs);
  std::vector<expression> result;
  result.reserve(xs.size());
  for (auto x : xs)
    result.push_back(mode.of(x));
  return result;
}

} // namespace troupe
