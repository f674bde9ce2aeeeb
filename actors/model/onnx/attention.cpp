// ONNX's operator Attention (Vaswani et al., 2017), from version 23 on.

#include "actors/model/onnx/node.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"

#include <cmath>
#include <limits>

namespace troupe {

namespace {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

/// Turns (batch, time, heads * features) into (batch, heads, time, features).
onnx_value heads_of(onnx_node& node, std::size_t input, std::int64_t heads) {
  const auto& v = node.input(input);
  const auto dims = v.dims();
  if (v.rank() != 3 && v.rank() != 4)
    node.refuse("expected a tensor of 3 or 4 dimensions, found " + shape_text(dims));
  if (v.rank() == 4)
    return v;
  if (heads < 1 || dims[2] % heads != 0)
    node.refuse(std::to_string(dims[2]) + " features cannot be divided among "
                + std::to_string(heads) + " heads");
  const auto apart = with_dims(node, v, {dims[0], dims[1], heads, dims[2] / heads});
  return transposed(apart, {0, 2, 1, 3}, node.target());
}

/// Repeats the heads of keys or values, so that there are as many as the queries have (`heads`).
onnx_value shared(const onnx_node& node, const onnx_value& v, std::int64_t heads) {
  const auto dims = v.dims();
  if (dims[1] == heads)
    return v;
  if (dims[1] < 1 || heads % dims[1] != 0)
    node.refuse(std::to_string(dims[1]) + " heads of keys do not fit " + std::to_string(heads)
                + " heads of queries");
  const auto apart = with_dims(node, v, {dims[0], dims[1], 1, dims[2], dims[3]});
  const auto repeated =
    expanded(node, apart, {dims[0], dims[1], heads / dims[1], dims[2], dims[3]});
  return with_dims(node, repeated, {dims[0], heads, dims[2], dims[3]});
}

/// The mask as a tensor that is added to the scores. If the mask has truth values, true becomes 0,
/// and false becomes minus infinity.
onnx_value summand_of(const onnx_node& node, std::size_t input) {
  const auto& v = node.input(input);
  if (v.is_truth)
    node.refuse("the truth values of its mask depend on the data; make a mask of numbers with "
                "Where: 0, and -1e9 for hidden positions");
  if (!v.known || v.known->type != onnx_constant::kind::boolean)
    return v;
  auto result = *v.known;
  result.type = onnx_constant::kind::real;
  for (auto& x : result.values)
    x = x != 0 ? 0 : minus_infinity;
  return result;
}

onnx_constant causal_mask(std::int64_t rows, std::int64_t columns) {
  onnx_constant result;
  result.dims = {rows, columns};
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t k = 0; k < columns; ++k)
      result.values.push_back(k <= i ? 0 : minus_infinity);
  return result;
}

/// The tensor that is added to the scores (..., rows, columns). Empty if nothing is added.
onnx_value mask_of(onnx_node& node, std::int64_t rows, std::int64_t columns) {
  onnx_value result;
  if (node.has_input(3))
    result = summand_of(node, 3);
  if (node.has_input(3) && result.rank() > 0 && result.dims().back() != columns)
    node.refuse("the mask has the shape " + shape_text(result.dims()) + ", and there are "
                + std::to_string(columns) + " keys; expected a last dimension of this size");
  if (node.integer("is_causal", 0) != 0) {
    if (static_cast<std::size_t>(rows * columns) > node.limit())
      node.refuse("the mask would have " + std::to_string(rows * columns) + " elements");
    const onnx_value causal{causal_mask(rows, columns)};
    result = node.has_input(3) ? node.combine(arithmetic::add, result, causal) : causal;
  }
  if (!result.known || result.known->dims.empty())
    return result;
  const auto& c = *result.known;
  const auto width = static_cast<std::size_t>(c.dims.back());
  for (std::size_t row = 0; row < c.elements(); row += width) {
    std::size_t hidden = 0;
    for (std::size_t i = row; i < row + width; ++i)
      hidden += c.at(i) == minus_infinity ? 1 : 0;
    if (hidden == width)
      node.refuse("a row of the mask hides all positions");
  }
  return result;
}

/// True if the graph's own operation for attention computes the same as this node
/// (kernels/graph/sequence_operations.hpp).
bool is_plain(onnx_node& node, const onnx_value& q, const onnx_value& k, const onnx_value& v) {
  for (const auto* x : {&q, &k, &v})
    if (!x->has_batch() || x->batch_at != 0 || !x->merged.empty() || x->rank() != q.rank())
      return false;
  if (node.has_input(3) || node.real("softcap", 0) != 0)
    return false;
  const auto q_dims = q.dims();
  const auto k_dims = k.dims();
  const auto heads = [&](const std::vector<std::int64_t>& dims, const char* attribute) {
    return dims.size() == 4 ? dims[1] : node.integer(attribute, 0);
  };
  return v.dims() == k_dims && q_dims.back() == k_dims.back()
    && heads(q_dims, "q_num_heads") == heads(k_dims, "kv_num_heads")
    && (node.integer("is_causal", 0) == 0 || q_dims == k_dims);
}

/// Uses the graph's own operation for attention, which keeps no matrix of scores.
expression plain_attention(onnx_node& node, std::int64_t heads) {
  const auto q = node.tensor(0);
  const auto width = q.shape().last() / (q.shape().rank() == 4 ? 1 : heads);
  const auto factor = node.real("scale", 1 / std::sqrt(static_cast<double>(width)));
  const bool causal = node.integer("is_causal", 0) != 0;
  return troupe::attention(q, node.tensor(1), node.tensor(2), heads, factor, causal);
}

void attention(onnx_node& node) {
  const auto given = node.input(0);
  auto heads = node.integer("q_num_heads", 0);
  const auto shared_heads = node.integer("kv_num_heads", heads);
  for (std::size_t i = 4; i < node.inputs(); ++i)
    if (node.has_input(i))
      node.refuse("earlier keys and values, or lengths of sequences, are not supported");
  for (std::size_t i = 1; i < 4; ++i)
    node.refuse_output(i, "keys, values or scores");
  node.ignore("qk_matmul_output_mode");
  node.ignore("softmax_precision");
  const auto q = heads_of(node, 0, heads);
  heads = q.dims()[1];
  if (is_plain(node, given, node.input(1), node.input(2))) {
    node.set(plain_attention(node, heads));
    return;
  }
  const auto k = shared(node, heads_of(node, 1, shared_heads), heads);
  const auto v = shared(node, heads_of(node, 2, shared_heads), heads);
  const auto factor = node.real("scale", 1 / std::sqrt(static_cast<double>(q.dims()[3])));
  auto scores = matrix_product(node, q, transposed(k, {0, 1, 3, 2}, node.target()));
  scores.x = scale(scores.x, factor);
  if (const auto most = node.real("softcap", 0); most != 0)
    scores.x = scale(tanh(scale(scores.x, 1 / most)), most);
  if (const auto mask = mask_of(node, q.dims()[2], k.dims()[2]); mask.known || mask.x.valid())
    scores = node.combine(arithmetic::add, scores, mask);
  scores.x = softmax(scores.x);
  const auto result = matrix_product(node, scores, v);
  if (given.rank() == 4) {
    node.set(result);
    return;
  }
  const auto turned = transposed(result, {0, 2, 1, 3}, node.target());
  const auto dims = turned.dims();
  node.set(with_dims(node, turned, {dims[0], dims[1], dims[2] * dims[3]}));
}

} // namespace

void add_attention_operators(onnx_operators& all) {
  all["Attention"] = {attention, 23,
                      "no earlier keys and values (past_key), no lengths of sequences, one output"};
}

} // namespace troupe
