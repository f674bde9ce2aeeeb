#include "kernels/graph/gradients.hpp"
#include "kernels/graph/reverse_mode.hpp"
#include "kernels/graph/sequence_operations.hpp"

namespace troupe::gradient_rules {

void concat(const gradient_step& s) {
  const auto axis = s.node.axes[0];
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < s.node.inputs.size(); ++i) {
    const auto end = begin + s.x(i).shape()[axis];
    if (s.wants(i))
      s.give(i, slice(s.g, axis, begin, end));
    begin = end;
  }
}

void blend(const gradient_step& s) {
  const auto axis = s.node.axes[0];
  const auto extent = static_cast<std::size_t>(s.x(0).shape()[axis]);
  s.give(0, troupe::blend(s.g, axis, transposed(blend_table_of(s.x(1)), extent)));
}

void batched_matmul(const gradient_step& s) { // the same formulas as for matmul
  const bool ta = s.node.transpose_a;
  const bool tb = s.node.transpose_b;
  if (s.wants(0))
    s.give(0, ta ? batched_matmul(s.x(1), s.g, tb, true) : batched_matmul(s.g, s.x(1), false, !tb));
  if (s.wants(1))
    s.give(1, tb ? batched_matmul(s.g, s.x(0), true, ta) : batched_matmul(s.x(0), s.g, !ta, false));
}

/// Backpropagation through time. One node computes the gradients of the inputs of the activations,
/// for all time steps. The gradients of z, w and b are slices and products of the result of this
/// node.
void recurrent(const gradient_step& s) {
  const auto how = s.node.cell;
  const auto w = s.x(1);
  const auto hidden = w.shape().last();
  const auto stored = s.y.shape().last();
  const auto dh = slice(s.g, 2, stored - hidden, stored);
  const auto d = recurrent_gradient(dh, s.y, w, how);
  // The gradient with respect to h_{t-1} w^T + b. For gru, its third part is the last part of d
  // (see troupe::recurrent_gradient).
  const auto state = how == cell::gru
    ? troupe::concat({slice(d, 2, 0, 2 * hidden), slice(d, 2, 3 * hidden, 4 * hidden)}, 2)
    : d;
  if (s.wants(0))
    s.give(0, how == cell::gru ? slice(d, 2, 0, 3 * hidden) : d);
  if (s.wants(1)) {
    const auto h = slice(s.y, 2, stored - hidden, stored);
    const auto dims = h.shape(); // a copy, because appending nodes moves the original
    const auto before = place(slice(h, 1, 0, dims[1] - 1), 1, 1, dims);
    s.give(1, matmul(state, before, true));
  }
  if (s.wants(2))
    s.give(2, sum_leading(state));
}

/// The derivative of normalize_rows_gradient with respect to x: d sum(g *
/// normalize_rows_gradient(dy, x)) / dx. Writes the formula of normalize_rows_gradient in simpler
/// operations, and differentiates them.
expression again(const gradient_step& s) {
  const auto x = s.x(1);
  const auto dy = stop_gradient(s.x(0));
  const auto dims = x.shape(); // a copy, because appending nodes moves the original
  const double share = 1.0 / static_cast<double>(dims.last());
  const auto mean = [&](expression v) { return broadcast_last(scale(sum_last(v), share), dims); };
  const auto centered = x - mean(x);
  const auto deviation = square_root(offset(mean(centered * centered), s.node.factor));
  const auto y = centered / deviation;
  const auto dx = (dy - mean(dy) - y * mean(dy * y)) / deviation;
  const std::vector<expression> by{x};
  return gradients(sum(dx * stop_gradient(s.g)), by)[0];
}

void normalize_rows_gradient(const gradient_step& s) {
  // normalize_rows_gradient is a linear function of dy with a symmetric matrix. So its gradient is
  // the same function, applied to g.
  if (s.wants(0))
    s.give(0, normalize_rows_gradient(s.g, s.x(1), s.node.factor));
  if (s.wants(1))
    s.give(1, again(s));
}

/// The gradient of each operand is a node of its own. A single step of the plan computes all of
/// these nodes.
void attention(const gradient_step& s) {
  for (std::size_t i = 0; i < s.node.inputs.size(); ++i)
    if (s.wants(i))
      s.give(i, troupe::attention_gradient(s.g, s.y, i));
}

/// Writes attention in simpler operations, and differentiates these operations twice. The first
/// inputs of the node, the result of attention and its statistics, get no gradient of their own,
/// because they are functions of the operands.
void attention_gradient(const gradient_step& s) {
  constexpr auto first = first_attention_operand(operation::attention_gradient);
  std::vector<expression> by;
  for (auto i = first; i < s.node.inputs.size(); ++i)
    by.push_back(stop_gradient(s.x(i)));
  const auto dy = stop_gradient(s.x(0));
  const auto y = composed_attention(s.node, by);
  const auto dx = gradients(sum(y * dy), by)[s.node.index];
  const auto operands = by.size();
  by.push_back(dy);
  const auto second = gradients(sum(dx * stop_gradient(s.g)), by);
  if (s.wants(0))
    s.give(0, second[operands]);
  for (std::size_t i = 0; i < operands; ++i)
    if (s.wants(first + i))
      s.give(first + i, second[i]);
}

} // namespace troupe::gradient_rules
