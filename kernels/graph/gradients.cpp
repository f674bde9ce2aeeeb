#include "kernels/graph/gradients.hpp"

#include "kernels/error.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/reverse_mode.hpp"
#include "kernels/graph/sparse_operations.hpp"

#include <numbers>

namespace troupe {

void reverse_mode::visit_matmul(const node& n, expression g) {
  const auto a = at(n.inputs[0]);
  const auto b = at(n.inputs[1]);
  const bool ta = n.transpose_a;
  const bool tb = n.transpose_b;
  // C = op(a) op(b): d op(a) = g op(b)^T, d op(b) = op(a)^T g, transposed again if a or b was. The
  // gradient of the inputs comes first, so that the weights are not read after the second one.
  if (wants(a.id()))
    give(a.id(), ta ? matmul(b, g, tb, true) : matmul(g, b, false, !tb));
  if (wants(b.id()))
    give(b.id(), tb ? matmul(g, a, true, ta) : matmul(a, g, !ta, false));
}

/// The gradients of two operands, one taken where `mask` is 1, the other where it is 0.
void reverse_mode::give_by(expression mask, std::uint32_t taken, std::uint32_t other,
                           expression g) {
  if (wants(taken))
    give(taken, relu_gradient(g, mask));
  if (wants(other))
    give(other, relu_gradient(g, offset(scale(mask, -1), 1)));
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
  case operation::gelu:
    give(a, gelu_gradient(g, at(a)));
    break;
  case operation::gelu_gradient: { // linear in dy; the derivative of that of gelu: phi(x) (2 - x^2)
    if (wants(a))
      give(a, gelu_gradient(g, at(b)));
    if (wants(b)) {
      const auto square = multiply(at(b), at(b));
      const auto density =
        scale(exp(scale(square, -0.5)), std::numbers::inv_sqrtpi / std::numbers::sqrt2);
      give(b, multiply(multiply(g, at(a)), multiply(density, offset(scale(square, -1), 2))));
    }
    break;
  }
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
  case operation::maximum:
    give_by(greater(at(a), at(b)), a, b, g);
    break;
  case operation::minimum:
    give_by(greater(at(b), at(a)), a, b, g);
    break;
  case operation::at_least:
    give(a, relu_gradient(g, above(at(a), n.factor)));
    break;
  case operation::at_most: // x < bound where -x > -bound
    give(a, relu_gradient(g, above(scale(at(a), -1), -n.factor)));
    break;
  case operation::greater:
  case operation::above:
    break;
  case operation::select:
    give_by(above(at(a), 0), b, n.inputs[2], g);
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
    give(a.id(), times(softmax_cross_entropy_gradient(a, b, n.labels), g));
    break;
  case operation::softmax_cross_entropy_gradient:
    if (n.labels.ignored)
      throw input_error("gradients: \"" + n.name
                        + "\" ignores a label and cannot be differentiated again");
    give(a.id(), scale(softmax_gradient(g, softmax(a)), n.factor));
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

/// The gradient of a sparse matrix would be a dense one.
void reverse_mode::refuse_sparse_gradient(const node& n) const {
  if (wants(n.inputs[0]))
    throw input_error("gradients: \"" + graph_.at(n.inputs[0]).name
                      + "\" is sparse; nothing can be differentiated by it");
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
  case operation::dropout:
    give(n.inputs[0], dropout(g, n.factor, n.key));
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
  case operation::sparse_matmul:
    refuse_sparse_gradient(n);
    give(n.inputs[1], sparse_matmul_gradient(at(n.inputs[0]), g));
    break;
  case operation::sparse_matmul_gradient: // linear in g
    refuse_sparse_gradient(n);
    give(n.inputs[1], sparse_matmul(at(n.inputs[0]), g));
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
