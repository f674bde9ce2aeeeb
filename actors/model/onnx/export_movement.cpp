// Operations that move elements, in ONNX.

#include "actors/model/onnx/exporter.hpp"
#include "kernels/graph/sequence_operations.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

std::string onnx_exporter::reshaped(const std::string& x, const shape& dims) {
  // ONNX cannot compute an open extent (-1) beside an extent of 0.
  if (dims.elements() == 0)
    return add("Reshape", {x, shape_of(dims)}, {integer("allowzero", 1)});
  auto extents = dims.extents();
  if (dims.has_batch())
    extents[0] = -1;
  return add("Reshape", {x, whole_numbers(extents)});
}

std::string onnx_exporter::transposed(const node& n) {
  return add("Transpose", {value(n.inputs[0])}, {integers("perm", {n.axes.begin(), n.axes.end()})});
}

std::string onnx_exporter::joined(const node& n) {
  std::vector<std::string> inputs;
  for (const auto id : n.inputs)
    inputs.push_back(value(id));
  return add("Concat", inputs, {integer("axis", static_cast<std::int64_t>(n.axes[0]))});
}

std::string onnx_exporter::sliced(const node& n) {
  if (absorbed_.contains(n.inputs[0]))
    return recurrent(at(n.inputs[0]));
  return sliced(value(n.inputs[0]), n);
}

/// The slice of x at the positions of the node `how`.
std::string onnx_exporter::sliced(const std::string& x, const node& how) {
  const auto axis = how.axes[0];
  const auto begin = static_cast<std::int64_t>(how.axes[1]);
  return add("Slice",
             {x, whole_numbers({begin}), whole_numbers({begin + how.shape[axis]}),
              whole_numbers({static_cast<std::int64_t>(axis)})});
}

/// Slices and reshapes the ids, and then looks up the rows.
std::string onnx_exporter::looked_up(const row_part& part) {
  auto ids = value(part.ids);
  for (const auto id : part.moves) {
    const auto& n = at(id);
    if (n.op == operation::slice) {
      ids = sliced(ids, n);
      continue;
    }
    auto extents = n.shape.extents();
    extents.pop_back();
    ids = reshaped(ids, shape{std::move(extents)});
  }
  return add("Gather", {value(part.table), ids});
}

std::string onnx_exporter::reversed(const node& n) {
  const auto axis = n.axes[0];
  return add("Slice",
             {value(n.inputs[0]), whole_numbers({-1}), whole_numbers({-n.shape[axis] - 1}),
              whole_numbers({static_cast<std::int64_t>(axis)}), whole_numbers({-1})});
}

std::string onnx_exporter::placed(const node& n) {
  const auto rank = n.shape.rank();
  std::vector<std::int64_t> pads(2 * rank, 0);
  const auto axis = n.axes[0];
  const auto begin = static_cast<std::int64_t>(n.axes[1]);
  pads[axis] = begin;
  pads[rank + axis] = n.shape[axis] - begin - at(n.inputs[0]).shape[axis];
  return add("Pad", {value(n.inputs[0]), whole_numbers(pads)});
}

// Each element of the result is a sum of terms. Term k of all elements is written as one product
// Gather * weight. All elements therefore need the same number of terms: an element with fewer
// terms repeats its last term, and divides the weight of this term. (Additional terms with weight 0
// would give NaN for infinite elements.)
std::string onnx_exporter::blended(const node& n) {
  const auto axis = n.axes[0];
  const auto table = blend_table_of({graph_, n.inputs[1]});
  const auto taps = std::ranges::max(table, {}, &std::vector<blend_term>::size).size();
  std::vector<std::int64_t> dims(n.shape.rank() - axis, 1);
  dims[0] = static_cast<std::int64_t>(table.size());
  std::string result;
  for (std::size_t k = 0; k < std::max<std::size_t>(taps, 1); ++k) {
    std::vector<std::int64_t> positions;
    std::vector<double> weights;
    for (const auto& terms : table) {
      const auto last = terms.empty() ? blend_term{} : terms[std::min(k, terms.size() - 1)];
      const bool repeats = k + 1 >= terms.size();
      positions.push_back(static_cast<std::int64_t>(last.position));
      weights.push_back(repeats ? last.weight / static_cast<double>(taps + 1 - terms.size())
                                : last.weight);
    }
    auto part = add("Gather", {value(n.inputs[0]), whole_numbers(positions)},
                    {integer("axis", static_cast<std::int64_t>(axis))});
    if (std::ranges::any_of(weights, [](double weight) { return weight != 1; }))
      part = add("Mul", {part, numbers(weights, dims)});
    result = result.empty() ? part : add("Add", {result, part});
  }
  return result;
}

} // namespace troupe
