#include "kernels/error.hpp"
#include "kernels/graph/gradients.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/reverse_mode.hpp"
#include "kernels/graph/sequence_operations.hpp"

namespace troupe {

void reverse_mode::visit_concat(const node& n, expression g) {
  std::int64_t begin = 0;
  for (auto input : n.inputs) {
    const auto extent = graph_.at(input).shape[n.axes[0]];
    if (wants(input))
      give(input, slice(g, n.axes[0], begin, begin + extent));
    begin += extent;
  }
}

/// Through time: the gradient of the activations' inputs, for all steps at once; the rest are
/// products.
void reverse_mode::visit_recurrent(const node& n, expression y, expression g) {
  const auto z = at(n.inputs[0]);
  const auto w = at(n.inputs[1]);
  const auto hidden = w.shape().last();
  const auto stored = y.shape().last();
  const auto dh = slice(g, 2, stored - hidden, stored);
  const auto d = recurrent_gradient(dh, y, w, n.cell);
  // The gradient of h_{t-1} w^T + b; gru multiplies the part of n by r.
  const auto recurrent = n.cell == cell::gru
    ? concat({slice(d, 2, 0, 2 * hidden), slice(d, 2, 3 * hidden, 4 * hidden)}, 2)
    : d;
  if (wants(z.id()))
    give(z.id(), n.cell == cell::gru ? slice(d, 2, 0, 3 * hidden) : d);
  if (wants(w.id())) {
    const auto h = slice(y, 2, stored - hidden, stored);
    const auto dims = h.shape(); // a copy: appending nodes moves them
    const auto before = place(slice(h, 1, 0, dims[1] - 1), 1, 1, dims);
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
  const auto dims = x.shape(); // a copy: appending nodes moves them
  const double share = 1.0 / static_cast<double>(dims.last());
  const auto mean = [&](expression v) { return broadcast_last(scale(sum_last(v), share), dims); };
  const auto centered = x - mean(x);
  const auto deviation = square_root(offset(mean(centered * centered), n.factor));
  const auto y = centered / deviation;
  const auto dx = (dy - mean(dy) - y * mean(dy * y)) / deviation;
  const std::vector<expression> by{x};
  return gradients(sum(dx * stop_gradient(g)), by)[0];
}

} // namespace troupe
