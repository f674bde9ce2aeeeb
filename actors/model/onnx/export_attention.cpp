// The ONNX nodes of attention. They do not use the operator Attention, because operator set 17,
// which the exporter writes, does not have it.

#include "actors/model/onnx/exporter.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace troupe {

std::string onnx_exporter::attention(const node& n) {
  const auto& how = n.attention;
  const auto columns = how.heads * how.width;
  // Queries, keys or values as (batch, heads, time, width), or transposed as (batch, heads, width,
  // time).
  const auto part = [&](const attention_operands::part& x, bool transposed) {
    const auto& dims = at(n.inputs[x.operand]).shape;
    auto y = value(n.inputs[x.operand]);
    if (dims.rank() == 4)
      return transposed ? add("Transpose", {y}, {integers("perm", {0, 1, 3, 2})}) : y;
    const auto begin = static_cast<std::int64_t>(x.column);
    if (dims.last() != columns)
      y = add("Slice",
              {y, whole_numbers({begin}), whole_numbers({begin + columns}), whole_numbers({2})});
    y = add("Reshape", {y, whole_numbers({-1, dims[1], how.heads, how.width})});
    const std::vector<std::int64_t> axes{0, 2, transposed ? 3 : 1, transposed ? 1 : 3};
    return add("Transpose", {y}, {integers("perm", axes)});
  };
  const auto q = part(how.queries, false);
  const auto scores = add("Mul", {add("MatMul", {q, part(how.keys, true)}), number(n.factor)});
  const auto time = n.shape[n.shape.rank() - 2];
  const auto shares =
    how.causal ? masked_softmax(scores, time) : add("Softmax", {scores}, {integer("axis", -1)});
  const auto mixed = add("MatMul", {shares, part(how.values, false)});
  if (n.shape.rank() == 4)
    return mixed;
  const auto turned = add("Transpose", {mixed}, {integers("perm", {0, 2, 1, 3})});
  return add("Reshape", {turned, whole_numbers({-1, time, columns})});
}

std::string onnx_exporter::causal_softmax(const node& n) {
  return masked_softmax(value(n.inputs[0]), n.shape.last());
}

// Softmax after -infinity is added to all elements above the diagonal. The file contains nodes that
// compute the mask, because the mask itself is large.
std::string onnx_exporter::masked_softmax(const std::string& x, std::int64_t time) {
  auto& mask = masks_[time];
  if (mask.empty()) {
    const auto all = expanded(number(-std::numeric_limits<double>::infinity()), {time, time});
    mask = add("Trilu", {all, whole_number(1)}, {integer("upper", 1)});
  }
  return add("Softmax", {add("Add", {x, mask})}, {integer("axis", -1)});
}

} // namespace troupe
