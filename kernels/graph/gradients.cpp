#include "kernels/graph/gradients.hpp"

#include "kernels/error.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/reverse_mode.hpp"
#include "kernels/graph/sequence_operations.hpp"
#include "kernels/graph/sparse_operations.hpp"

#include <algorithm>
#include <array>
#include <numbers>
#include <utility>

namespace troupe {

reverse_mode::reverse_mode(expression y, std::span<const expression> xs, expression seed)
  : graph_(y.owner()), wanted_(y.id() + 1, false), gradient_(y.id() + 1) {
  for (auto x : xs)
    if (x.id() < wanted_.size()) {
      wanted_[x.id()] = true;
      find_bypasses(x, y.id() + 1);
    }
  for (const auto& x : bypasses_)
    wanted_[x.attention] = true;
  for (std::uint32_t id = 0; id < wanted_.size(); ++id)
    for (auto input : graph_.at(id).inputs)
      wanted_[id] = wanted_[id] || wanted_[input];
  if (wanted_[y.id()])
    gradient_[y.id()] = seed.valid() ? seed : graph_.constant(1);
  for (auto id = y.id() + 1; id-- > 0;)
    if (gradient_[id])
      visit(id);
}

expression reverse_mode::of(expression x) {
  const bool found = x.id() < gradient_.size() && gradient_[x.id()];
  const auto more = bypassed_.find(x.id());
  if (found && more != bypassed_.end())
    return add(*gradient_[x.id()], more->second);
  if (found)
    return *gradient_[x.id()];
  return more != bypassed_.end() ? more->second : graph_.constant(0, x.shape());
}

void reverse_mode::find_bypasses(expression x, std::uint32_t end) {
  const auto& part = x.node();
  if (part.op != operation::slice || part.shape.rank() != 3 || part.axes[0] != 2)
    return;
  const auto source = part.inputs[0];
  for (auto id = x.id() + 1; id < end; ++id) {
    const auto& n = graph_.at(id);
    if (n.op != operation::attention && n.op != operation::attention_gradient)
      continue;
    const auto first = first_attention_operand(n.op);
    const auto& how = n.attention;
    const bool reads = std::ranges::any_of(
      std::array{how.queries, how.keys, how.values}, [&](const attention_operands::part& y) {
        return n.inputs[first + y.operand] == source && y.column == part.axes[1]
          && how.heads * how.width == part.shape.last();
      });
    if (reads)
      bypasses_.push_back({x.id(), id, source});
  }
}

void reverse_mode::visit(std::uint32_t id) {
  if (std::ranges::find(bypasses_, id, &bypass::attention) != bypasses_.end()) {
    visit_bypassing(id);
    return;
  }
  const node n = graph_.at(id); // a copy, because appending nodes moves the original
  traits_of(n.op).gradient({*this, n, {graph_, id}, *gradient_[id]});
}

// Visits an attention node that reads columns of a tensor, the source, although the graph also has
// these columns as slices (see bypass). Computes the gradient of the source, and adds its columns
// to the gradients of the slices (bypassed_). At the end, drops the gradient of the source if only
// its slices need it.
void reverse_mode::visit_bypassing(std::uint32_t id) {
  // For each source: its entries of wanted_ and gradient_ before this visit. They are restored at
  // the end.
  std::map<std::uint32_t, std::pair<bool, std::optional<expression>>> before;
  for (const auto& x : bypasses_)
    if (x.attention == id && !before.contains(x.source)) {
      before[x.source] = {wanted_[x.source], std::exchange(gradient_[x.source], std::nullopt)};
      wanted_[x.source] = true;
    }
  const node n = graph_.at(id);
  traits_of(n.op).gradient({*this, n, {graph_, id}, *gradient_[id]});
  for (const auto& x : bypasses_) {
    if (x.attention != id || !gradient_[x.source])
      continue;
    const expression part{graph_, x.slice};
    const auto begin = static_cast<std::int64_t>(part.node().axes[1]);
    const auto own = slice(*gradient_[x.source], 2, begin, begin + part.shape().last());
    const auto [i, first] = bypassed_.emplace(x.slice, own);
    if (!first)
      i->second = add(i->second, own);
  }
  for (auto& [source, was] : before) {
    wanted_[source] = was.first;
    auto& total = gradient_[source];
    if (!was.first)
      total = was.second;
    else if (was.second)
      total = total ? add(*was.second, *total) : *was.second;
  }
}

void gradient_step::refuse(const std::string& what) const {
  throw input_error("gradients: \"" + node.name + "\" " + what + " cannot be differentiated again");
}

expression softmax_gradient(expression g, expression y) {
  const auto dims = y.shape(); // a copy, because appending nodes moves the original
  return multiply(y, subtract(g, broadcast_last(sum_last(multiply(g, y)), dims)));
}

expression times(expression x, expression g) {
  // Usually, the loss is a single term, and g is the constant 1. Then no multiplication is needed.
  const auto& n = g.node();
  const bool one = n.op == operation::constant && n.values.size() == 1 && n.values[0] == 1;
  return one ? x : multiply(broadcast(g, x.shape()), x);
}

namespace gradient_rules {

/// For C = op(a) op(b), the gradients are d op(a) = g op(b)^T and d op(b) = op(a)^T g. If a (or b)
/// was transposed, its gradient is transposed, too. Operands with more than two dimensions are
/// treated as matrices, so the product may be a matrix where the operand is not.
void matmul(const gradient_step& s) {
  const bool ta = s.node.transpose_a;
  const bool tb = s.node.transpose_b;
  const auto give = [&s](std::size_t i, expression product) {
    const auto dims = s.x(i).shape();
    s.give(i, product.shape() == dims ? product : reshape(product, dims));
  };
  if (s.wants(0))
    give(0, ta ? matmul(s.x(1), s.g, tb, true) : matmul(s.g, s.x(1), false, !tb));
  if (s.wants(1))
    give(1, tb ? matmul(s.g, s.x(0), true, ta) : matmul(s.x(0), s.g, !ta, false));
}

/// Throws input_error if a gradient with respect to the sparse matrix is wanted, because this
/// gradient would be dense.
void refuse_sparse(const gradient_step& s) {
  if (s.wants(0))
    throw input_error("gradients: \"" + s.x(0).name()
                      + "\" is sparse; nothing can be differentiated by it");
}

void sparse_matmul(const gradient_step& s) {
  refuse_sparse(s);
  s.give(1, sparse_matmul_gradient(s.x(0), s.g));
}

void sparse_matmul_gradient(const gradient_step& s) { // the operation is linear in g
  refuse_sparse(s);
  s.give(1, sparse_matmul(s.x(0), s.g));
}

/// gelu_gradient(dy, x) is linear in dy, so the gradient with respect to dy is gelu_gradient(g, x).
/// The gradient with respect to x needs the second derivative of gelu, which is phi(x) (2 - x^2),
/// where phi is the density of the standard normal distribution.
void gelu_gradient(const gradient_step& s) {
  const auto x = s.x(1);
  if (s.wants(0))
    s.give(0, gelu_gradient(s.g, x));
  if (!s.wants(1))
    return;
  const auto square = multiply(x, x);
  const auto density =
    scale(exp(scale(square, -0.5)), std::numbers::inv_sqrtpi / std::numbers::sqrt2);
  s.give(1, multiply(multiply(s.g, s.x(0)), multiply(density, offset(scale(square, -1), 2))));
}

void by_mask(const gradient_step& s, expression mask, std::size_t taken, std::size_t other) {
  if (s.wants(taken))
    s.give(taken, relu_gradient(s.g, mask));
  if (s.wants(other))
    s.give(other, relu_gradient(s.g, offset(scale(mask, -1), 1)));
}

void softmax_cross_entropy_gradient(const gradient_step& s) {
  if (s.node.labels.ignored)
    s.refuse("ignores a label and");
  s.give(0, scale(softmax_gradient(s.g, softmax(s.x(0))), s.node.factor));
}

void squared_error(const gradient_step& s) { // y = factor * sum (a - b)^2
  const auto part = [&](expression a, expression b) {
    return times(scale(subtract(a, b), 2 * s.node.factor), s.g);
  };
  if (s.wants(0))
    s.give(0, part(s.x(0), s.x(1)));
  if (s.wants(1))
    s.give(1, part(s.x(1), s.x(0)));
}

} // namespace gradient_rules

std::vector<expression> gradients(expression y, std::span<const expression> xs, expression seed) {
  if (!y.shape().extents().empty())
    throw input_error("gradients: \"" + y.name() + "\" has shape " + to_string(y.shape())
                      + "; only a scalar can be differentiated");
  for (auto x : xs)
    if (!x.valid() || &x.owner() != &y.owner())
      throw input_error("gradients: \"" + y.name() + "\" and an expression to differentiate by "
                        + "belong to different graphs");
  if (seed.valid() && (&seed.owner() != &y.owner() || !seed.shape().extents().empty()))
    throw input_error("gradients: the factor of \"" + y.name()
                      + "\" is not a scalar of the same graph");
  reverse_mode mode(y, xs, seed);
  std::vector<expression> result;
  result.reserve(xs.size());
  for (auto x : xs)
    result.push_back(mode.of(x));
  return result;
}

} // namespace troupe
