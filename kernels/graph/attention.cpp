// Functions that build attention and its gradients.

#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/node_builder.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// The largest width of a head for which attention is a single operation. The kernels of GPUs hold
/// a head's results in registers, and the results of a wider head do not fit. For wider heads,
/// compose() uses separate products and a softmax.
constexpr std::int64_t widest_head = 128;

/// Changes (batch, time, heads * width) to (batch, heads, time, width). Tensors with four
/// dimensions already have this form.
expression split_heads(expression x, std::int64_t heads) {
  const auto dims = x.shape(); // a copy, because appending nodes moves the original
  if (dims.rank() == 4)
    return x;
  const shape apart{shape::batch, dims[1], heads, dims.last() / heads};
  return transpose(reshape(x, apart), {0, 2, 1, 3});
}

expression compose(expression q, expression k, expression v, std::int64_t heads, double factor,
                   bool causal) {
  const auto dims = q.shape();
  const auto scores =
    scale(batched_matmul(split_heads(q, heads), split_heads(k, heads), false, true), factor);
  const auto shares = causal ? causal_softmax(scores) : softmax(scores);
  const auto mixed = batched_matmul(shares, split_heads(v, heads));
  return dims.rank() == 4 ? mixed : reshape(transpose(mixed, {0, 2, 1, 3}), dims);
}

bool heads_fit(const shape& q, const shape& k, const shape& v, std::int64_t heads, bool causal) {
  const auto rank = q.rank();
  if ((rank != 3 && rank != 4) || k.rank() != rank || v != k || !q.has_batch() || !k.has_batch()
      || q.last() != k.last() || heads < 1 || (causal && k != q))
    return false;
  return rank == 3 ? q.last() % heads == 0 : q[1] == heads && k[1] == heads;
}

/// Finds a tensor that was cut along the last axis into queries, keys and values, such as the
/// result of a product that computes all three. If the slices cover the tensor completely,
/// attention reads the tensor directly, and writes the gradient of the whole tensor. Then no slice
/// is copied.
struct operand_search {
  std::array<expression, 3> parts;
  attention_operands where;
  std::vector<expression> all;

  static bool is_part(expression x) {
    return x.node().op == operation::slice && x.shape().rank() == 3 && x.node().axes[0] == 2
      && x.shape().last() < source(x).shape().last();
  }
  static expression source(expression x) { return {x.owner(), x.node().inputs[0]}; }
  /// True if the slices of one tensor among `parts` cover the tensor completely, without overlap.
  /// The tensor is the source of x, which must be a slice.
  bool is_covered(expression x) const {
    std::set<std::size_t> begins;
    std::int64_t width = 0;
    for (auto other : parts)
      if (is_part(other) && source(other) == source(x)) {
        begins.insert(other.node().axes[1]);
        width += other.shape().last();
      }
    // All slices have the same width, so each of them must begin at a multiple of this width.
    for (auto begin : begins)
      if (begin % static_cast<std::size_t>(x.shape().last()) != 0)
        return false;
    const auto own = x.shape().last();
    return width == source(x).shape().last()
      && static_cast<std::int64_t>(begins.size()) * own == width;
  }
  attention_operands::part add(expression x) {
    if (!is_part(x) || !is_covered(x)) {
      all.push_back(x);
      return {all.size() - 1, 0};
    }
    const auto from = source(x);
    const auto found = std::ranges::find(all, from);
    const auto index = static_cast<std::size_t>(found - all.begin());
    if (found == all.end())
      all.push_back(from);
    return {index, x.node().axes[1]};
  }
};

node make_relative(operation what, shape dims, const node& of) {
  auto result = make_node(what, std::move(dims));
  result.factor = of.factor;
  result.attention = of.attention;
  return result;
}

std::vector<expression> operands_of(expression x) {
  std::vector<expression> result;
  for (auto id : x.node().inputs)
    result.emplace_back(x.owner(), id);
  return result;
}

} // namespace

expression attention(expression q, expression k, expression v, std::int64_t heads, double factor,
                     bool causal) {
  for (auto x : {q, k, v})
    check_float(operation::attention, x);
  const auto dims = q.shape();
  if (!heads_fit(dims, k.shape(), v.shape(), heads, causal))
    refuse(operation::attention,
           describe(q) + ", " + describe(k) + " and " + describe(v) + " in " + std::to_string(heads)
             + " heads do not fit: expected three tensors (batch, time, heads * n) or (batch, "
               "heads, time, n)"
             + (causal ? " with the same number of time steps" : ""));
  const auto rank = dims.rank();
  const auto width = rank == 4 ? dims.last() : dims.last() / heads;
  if (width < 1 || width > widest_head || dims[rank - 2] < 1 || k.shape()[rank - 2] < 1)
    return compose(q, k, v, heads, factor, causal);
  operand_search found{{q, k, v}, {}, {}};
  auto result = make_node(operation::attention, dims);
  result.factor = factor;
  auto& where = result.attention;
  where.queries = found.add(q);
  where.keys = found.add(k);
  where.values = found.add(v);
  where.heads = heads;
  where.width = width;
  where.causal = causal;
  return append(std::move(result), found.all);
}

expression attention_statistics(expression of) {
  const auto& n = of.node();
  // Returns an existing node for the statistics if the graph has one. So the gradients of all
  // operands have the same inputs, and one step of the plan can compute them.
  const auto& nodes = of.owner().nodes();
  for (auto id = of.id() + 1; id < nodes.size(); ++id)
    if (const auto& other = nodes[id]; other.op == operation::attention_statistics
        && other.inputs == n.inputs && other.attention == n.attention && other.factor == n.factor)
      return {of.owner(), id};
  const auto time = n.shape[n.shape.rank() - 2];
  return append(
    make_relative(operation::attention_statistics, {shape::batch, n.attention.heads, time}, n),
    operands_of(of));
}

expression attention_gradient(expression dy, expression of, std::size_t operand) {
  const auto statistics = attention_statistics(of);
  const auto all = operands_of(of);
  auto result = make_relative(operation::attention_gradient, all.at(operand).shape(), of.node());
  result.index = operand;
  std::vector<expression> inputs{dy, of, statistics};
  inputs.insert(inputs.end(), all.begin(), all.end());
  return append(std::move(result), inputs);
}

expression composed_attention(const node& of, const std::vector<expression>& operands) {
  const auto where = of.attention; // a copy, because `of` may move
  const auto factor = of.factor;
  const auto columns = where.heads * where.width;
  const auto part = [&](const attention_operands::part& x) {
    const auto from = operands.at(x.operand);
    const auto begin = static_cast<std::int64_t>(x.column);
    return from.shape().rank() == 4 || from.shape().last() == columns
      ? from
      : slice(from, 2, begin, begin + columns);
  };
  const auto q = part(where.queries);
  const auto k = part(where.keys);
  return compose(q, k, part(where.values), where.heads, factor, where.causal);
}

expression multi_head_attention(expression q, expression k, expression v, std::int64_t heads,
                                bool causal) {
  const auto dims = q.shape();
  if (dims.rank() != 3 || !heads_fit(dims, k.shape(), v.shape(), heads, causal))
    throw input_error("multi_head_attention: " + describe(q) + ", " + describe(k) + " and "
                      + describe(v) + " in " + std::to_string(heads)
                      + " heads: expected three tensors (batch, time, heads * n)"
                      + (causal ? " with the same number of time steps" : ""));
  const auto width = static_cast<double>(dims.last() / heads);
  return attention(q, k, v, heads, 1 / std::sqrt(width), causal);
}

} // namespace troupe
