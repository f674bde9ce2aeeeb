// ONNX's operators that split and join tensors.

#include "actors/model/onnx/model.hpp"
#include "actors/model/onnx/padding.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t most_runs = 64;
constexpr std::int64_t most_padding = std::int64_t{1} << 24;

// -- parts --------------------------------------------------------------------------------------

struct cut {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t step = 1;

  std::int64_t count() const {
    const auto distance = step > 0 ? end - begin : begin - end;
    const auto size = std::abs(step);
    return std::max<std::int64_t>(0, (distance + size - 1) / size);
  }
};

/// Resolves the bounds of a slice as NumPy does: negative positions count from the end, and
/// positions beyond the ends are clamped.
cut cut_of(const onnx_node& node, std::int64_t begin, std::int64_t end, std::int64_t step,
           std::int64_t extent) {
  if (step == 0)
    node.refuse("a step is 0");
  const auto place = [&](std::int64_t x) {
    if (x < 0)
      x = x < -extent ? -1 - extent : x;
    x = x < 0 ? x + extent : x;
    return step > 0 ? std::clamp<std::int64_t>(x, 0, extent)
                    : std::clamp<std::int64_t>(x, -1, extent - 1);
  };
  // A step beyond the extent has the same effect as the clamped step, which cannot overflow.
  cut result{place(begin), place(end), std::clamp(step, -extent - 1, extent + 1)};
  if (step > 0)
    result.end = std::max(result.begin, result.end);
  return result;
}

onnx_constant part_of(const onnx_constant& c, std::size_t axis, const cut& how, std::size_t limit,
                      const onnx_node& node) {
  onnx_constant result;
  result.type = c.type;
  result.dims = c.dims;
  const auto extent = c.dims[axis];
  const auto count = how.count();
  result.dims[axis] = count;
  if (c.uniform()) {
    result.values = c.values;
    return result;
  }
  if (result.elements() > limit)
    node.refuse("a constant of shape " + shape_text(result.dims) + " is too large");
  if (result.elements() == 0)
    return result;
  const auto before = onnx_product(c.dims, 0, axis);
  const auto behind = onnx_product(c.dims, axis + 1, c.dims.size());
  for (std::int64_t i = 0; i < before; ++i)
    for (std::int64_t n = 0; n < count; ++n)
      for (std::int64_t k = 0; k < behind; ++k)
        result.values.push_back(
          c.values[static_cast<std::size_t>((i * extent + how.begin + n * how.step) * behind + k)]);
  return result;
}

struct slice_arguments {
  std::vector<std::int64_t> begins;
  std::vector<std::int64_t> ends;
  std::vector<std::int64_t> axes;
  std::vector<std::int64_t> steps;
};

slice_arguments arguments_of_slice(onnx_node& node) {
  slice_arguments x;
  if (node.version() < 10) {
    x.begins = node.integers("starts");
    x.ends = node.integers("ends");
    x.axes = node.integers("axes");
  } else {
    x.begins = node.integers_of(1, "starts");
    x.ends = node.integers_of(2, "ends");
    if (node.has_input(3))
      x.axes = node.integers_of(3, "axes");
    if (node.has_input(4))
      x.steps = node.integers_of(4, "steps");
  }
  if (x.axes.empty()) {
    x.axes.resize(x.begins.size());
    std::iota(x.axes.begin(), x.axes.end(), std::int64_t{0});
  }
  x.steps.resize(x.steps.empty() ? x.begins.size() : x.steps.size(), 1);
  const auto n = x.begins.size();
  if (x.ends.size() != n || x.axes.size() != n || x.steps.size() != n)
    node.refuse("starts, ends, axes and steps differ in length");
  return x;
}

/// Every `step`-th element of v along an axis: `count` elements, of which the first is at `begin`.
onnx_value strided(const onnx_node& node, const onnx_value& v, std::size_t axis, std::int64_t begin,
                   std::int64_t count, std::int64_t step) {
  const auto extent = v.dims()[axis];
  // Cuts the axis into groups of `step` elements, and takes one element of each group. The groups
  // may begin with their element, or end with it. If neither fits, the last element is added alone.
  const bool ends = begin + count * step > extent && begin >= step - 1;
  const auto groups = ends || begin + count * step <= extent ? count : count - 1;
  const auto first = ends ? begin - (step - 1) : begin;
  const auto last = begin + (count - 1) * step;
  std::vector<onnx_value> parts;
  if (groups > 0) {
    auto dims = v.dims();
    dims[axis] = groups;
    auto apart = dims;
    apart.insert(apart.begin() + static_cast<std::ptrdiff_t>(axis) + 1, step);
    const auto x = with_dims(node, sliced(node, v, axis, first, first + groups * step), apart);
    const auto at = ends ? step - 1 : 0;
    parts.push_back(with_dims(node, sliced(node, x, axis + 1, at, at + 1), dims));
  }
  if (groups < count)
    parts.push_back(sliced(node, v, axis, last, last + 1));
  return parts.size() == 1 ? parts[0] : concatenated(node, parts, axis);
}

void slice(onnx_node& node) {
  auto v = node.input(0);
  const auto x = arguments_of_slice(node);
  for (std::size_t i = 0; i < x.begins.size(); ++i) {
    const auto axis = node.axis(x.axes[i], v.rank());
    const auto extent = v.dims()[axis];
    if (extent == onnx_constant::batch) {
      if (x.begins[i] != 0 || x.ends[i] < std::numeric_limits<std::int32_t>::max()
          || x.steps[i] != 1)
        node.refuse("axis " + std::to_string(axis) + " is the batch, which cannot be sliced");
      continue;
    }
    const auto how = cut_of(node, x.begins[i], x.ends[i], x.steps[i], extent);
    if (v.known) {
      v = part_of(*v.known, axis, how, node.limit(), node);
      continue;
    }
    const auto count = how.count();
    if (how.step < 0) {
      v = {reverse(v.x, v.graph_axis(axis)), v.batch_at};
      v = count == 0 ? sliced(node, v, axis, 0, 0)
                     : strided(node, v, axis, extent - 1 - how.begin, count, -how.step);
      continue;
    }
    v = how.step == 1 || count == 0 ? sliced(node, v, axis, how.begin, how.begin + count)
                                    : strided(node, v, axis, how.begin, count, how.step);
  }
  node.set(v);
}

/// ReverseSequence: reverses the first elements along an axis; the other elements stay in place.
/// Input 1 has the number of reversed elements for each sample. All these numbers must be equal, as
/// in the models of tf2onnx, which writes TensorFlow's ReverseV2 as this operator.
void reverse_sequence(onnx_node& node) {
  const auto& v = node.input(0);
  const auto axis = node.axis(node.integer("time_axis", 0), v.rank());
  const auto batch_axis = node.axis(node.integer("batch_axis", 1), v.rank());
  const auto& lengths = node.known(1, "lengths of the sequences");
  const auto extent = v.dims()[axis];
  const auto length = lengths.elements() > 0 ? onnx_integer(lengths.at(0)) : 0;
  if (std::ranges::any_of(lengths.values, [&](double x) { return x != lengths.at(0); }))
    node.refuse("the sequences have different lengths");
  if (axis == batch_axis || extent == onnx_constant::batch || length < 1 || length > extent)
    node.refuse("the first " + std::to_string(length) + " of " + std::to_string(extent)
                + " elements of axis " + std::to_string(axis) + " cannot be reversed");
  const onnx_value x{node.tensor(0), v.batch_at};
  const auto first = sliced(node, x, axis, 0, length);
  const onnx_value turned{reverse(first.x, x.graph_axis(axis)), x.batch_at};
  node.set(length == extent
             ? turned
             : concatenated(node, {turned, sliced(node, x, axis, length, extent)}, axis));
}

/// Cuts input 0 along an axis into parts of these sizes.
std::vector<onnx_value> parts_of(const onnx_node& node, std::size_t axis,
                                 const std::vector<std::int64_t>& sizes) {
  const auto& v = node.input(0);
  const auto extent = v.dims()[axis];
  std::int64_t total = 0;
  for (const auto x : sizes) {
    if (x < 0 || x > extent)
      node.refuse("a part has " + std::to_string(x) + " of " + std::to_string(extent)
                  + " elements");
    total += x;
  }
  if (total != extent)
    node.refuse("the parts do not add up to the " + std::to_string(extent) + " elements of axis "
                + std::to_string(axis));
  std::vector<onnx_value> result;
  std::int64_t begin = 0;
  for (const auto size : sizes) {
    result.push_back(
      v.known ? onnx_value{part_of(*v.known, axis, {begin, begin + size, 1}, node.limit(), node)}
              : sliced(node, v, axis, begin, begin + size));
    begin += size;
  }
  return result;
}

/// Divides `extent` into parts of `each` elements, and returns their sizes. The last part may be
/// smaller.
std::vector<std::int64_t> equal_sizes(std::int64_t extent, std::int64_t each) {
  std::vector<std::int64_t> result;
  for (auto left = extent; left > 0 && each > 0; left -= each)
    result.push_back(std::min(each, left));
  return result;
}

void split(onnx_node& node) {
  const auto& v = node.input(0);
  const auto axis = node.axis(node.integer("axis", 0), v.rank());
  const auto extent = v.dims()[axis];
  const auto count = static_cast<std::int64_t>(node.outputs());
  auto sizes = node.integers("split");
  if (node.has_input(1))
    sizes = node.integers_of(1, "sizes");
  node.require("num_outputs", count, count);
  if (sizes.empty())
    sizes = equal_sizes(extent, count == 0 ? 0 : (extent + count - 1) / count);
  const auto parts = parts_of(node, axis, sizes);
  if (parts.size() != node.outputs())
    node.refuse("the parts do not add up to the " + std::to_string(extent) + " elements of axis "
                + std::to_string(axis));
  for (std::size_t i = 0; i < parts.size(); ++i)
    node.set(i, parts[i]);
}

void split_to_sequence(onnx_node& node) {
  const auto& v = node.input(0);
  const auto axis = node.axis(node.integer("axis", 0), v.rank());
  node.ignore("keepdims"); // has no effect if the sizes are given
  const auto extent = v.dims()[axis];
  const bool one = node.known(1, "sizes").dims.empty();
  auto sizes = node.integers_of(1, "sizes");
  if (one && (sizes[0] < 1 || extent / sizes[0] > std::int64_t{1} << 16))
    node.refuse("the size of a part is " + std::to_string(sizes[0]));
  if (one)
    sizes = equal_sizes(extent, sizes[0]);
  onnx_value result;
  result.items = std::make_shared<const std::vector<onnx_value>>(parts_of(node, axis, sizes));
  node.set(result);
}

void sequence_at(onnx_node& node) {
  const auto& all = node.sequence(0);
  node.set(all[node.axis(onnx_integer(node.number_of(1, "position")), all.size())]);
}

onnx_constant joined(const onnx_node& node, const std::vector<onnx_value>& parts,
                     std::size_t axis) {
  onnx_constant result;
  bool uniform = true;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto& c = *parts[i].known;
    uniform = uniform && c.uniform() && c.values == parts[0].known->values;
    if (i == 0) {
      result.type = c.type;
      result.dims = c.dims;
      continue;
    }
    auto expected = result.dims;
    if (c.dims.size() == expected.size())
      expected[axis] = c.dims[axis];
    if (c.dims != expected)
      node.refuse("shapes " + shape_text(result.dims) + " and " + shape_text(c.dims)
                  + " differ in more than axis " + std::to_string(axis));
    if (c.dims[axis] == onnx_constant::batch || result.dims[axis] == onnx_constant::batch)
      node.refuse("constants are joined along the batch");
    result.dims[axis] += c.dims[axis];
  }
  if (uniform && result.dims[axis] > 0) {
    result.values = parts[0].known->values;
    return result;
  }
  if (result.elements() > node.limit())
    node.refuse("a constant of shape " + shape_text(result.dims) + " is too large");
  if (result.elements() == 0)
    return result;
  const auto before = onnx_product(result.dims, 0, axis);
  for (std::int64_t k = 0; k < before; ++k)
    for (const auto& part : parts) {
      const auto& c = *part.known;
      const auto length = onnx_product(c.dims, axis, c.dims.size());
      for (std::int64_t j = 0; j < length; ++j)
        result.values.push_back(c.at(static_cast<std::size_t>(k * length + j)));
    }
  return result;
}

void concat(onnx_node& node) {
  if (node.inputs() == 0)
    node.refuse("it has no inputs");
  std::vector<onnx_value> parts;
  for (std::size_t i = 0; i < node.inputs(); ++i)
    parts.push_back(node.input(i));
  node.set(concatenated(node, parts, node.axis(node.integer("axis", 1), parts[0].rank())));
}

// -- picking ------------------------------------------------------------------------------------

onnx_constant picked(const onnx_node& node, const onnx_constant& from, const onnx_constant& which,
                     std::size_t axis) {
  onnx_constant result;
  result.type = from.type;
  result.dims.assign(from.dims.begin(), from.dims.begin() + static_cast<std::ptrdiff_t>(axis));
  result.dims.insert(result.dims.end(), which.dims.begin(), which.dims.end());
  result.dims.insert(result.dims.end(), from.dims.begin() + static_cast<std::ptrdiff_t>(axis) + 1,
                     from.dims.end());
  if (result.elements() > node.limit())
    node.refuse("a constant of shape " + shape_text(result.dims) + " is too large");
  if (result.elements() == 0)
    return result;
  const auto extent = from.dims[axis];
  const auto before = onnx_product(from.dims, 0, axis);
  const auto behind = onnx_product(from.dims, axis + 1, from.dims.size());
  const auto count = which.elements();
  for (std::int64_t i = 0; i < before; ++i)
    for (std::size_t k = 0; k < count; ++k) {
      auto position = onnx_integer(which.at(k));
      position += position < 0 ? extent : 0;
      if (position < 0 || position >= extent)
        node.refuse("index " + std::to_string(onnx_integer(which.at(k)))
                    + " is out of range: there are " + std::to_string(extent) + " elements");
      for (std::int64_t j = 0; j < behind; ++j)
        result.values.push_back(
          from.at(static_cast<std::size_t>((i * extent + position) * behind + j)));
    }
  return result;
}

/// Picks the elements of a tensor at known positions. Consecutive positions are taken together as
/// one slice.
onnx_value picked(const onnx_node& node, const onnx_value& v, const onnx_constant& which,
                  std::size_t axis) {
  const auto extent = v.dims()[axis];
  const auto positions = elements_of(which, node.limit(), node);
  if (positions.empty())
    node.refuse("no elements are selected");
  std::vector<std::pair<std::int64_t, std::int64_t>> runs;
  for (const auto x : positions) {
    const auto given = onnx_integer(x);
    const auto position = given < 0 ? given + extent : given;
    if (position < 0 || position >= extent)
      node.refuse("index " + std::to_string(given) + " is out of range: there are "
                  + std::to_string(extent) + " elements");
    if (!runs.empty() && runs.back().second == position)
      ++runs.back().second;
    else
      runs.emplace_back(position, position + 1);
  }
  onnx_value result;
  if (runs.size() > most_runs) {
    constexpr std::size_t numbers = 2; // a position and a weight
    node.charge(numbers * positions.size());
    blend_table table;
    for (const auto& [begin, end] : runs)
      for (auto position = begin; position < end; ++position)
        table.push_back({{static_cast<std::size_t>(position), 1}});
    result = {blend(v.x, v.graph_axis(axis), table), v.batch_at};
  } else if (runs.size() > 1) {
    std::vector<expression> parts;
    for (const auto& [begin, end] : runs)
      parts.push_back(to_tensor(sliced(node, v, axis, begin, end), node.target()));
    result = {troupe::concat(parts, v.graph_axis(axis)), v.batch_at};
  } else {
    result = sliced(node, v, axis, runs[0].first, runs[0].second);
  }
  auto dims = result.dims();
  const auto at = dims.begin() + static_cast<std::ptrdiff_t>(axis);
  dims.insert(dims.erase(at), which.dims.begin(), which.dims.end());
  return with_dims(node, result, dims);
}

/// The rows of an embedding. Those of this id pass no gradient to the table.
expression without_gradient_of(std::int64_t id, expression rows, expression ids) {
  const auto ids_shape = ids.shape(); // copies: adding nodes invalidates references
  const auto rows_shape = rows.shape();
  const auto distance = absolute(offset(to_float(ids, ids_shape), -static_cast<double>(id)));
  const auto others = broadcast_last(above(distance, 0.5), rows_shape);
  return select(others, rows, stop_gradient(rows));
}

void gather(onnx_node& node) {
  const auto padding = node.integer(onnx_model::padding_row, -1);
  const auto& v = node.input(0);
  const auto& which = node.token_input(1);
  const auto axis = node.axis(node.integer("axis", 0), v.rank());
  if (v.known && which.known) {
    node.set(picked(node, *v.known, *which.known, axis));
    return;
  }
  if (which.known) {
    node.set(picked(node, v, *which.known, axis));
    return;
  }
  if (axis != 0 || v.rank() != 2)
    node.refuse("computed positions can only select rows of a table (entries, n)");
  if (which.x.node().type != dtype::int32)
    node.refuse("the positions are not whole numbers");
  constexpr std::int64_t most_rows = std::int64_t{1} << 20;
  if (which.of_tokens && v.dims()[0] > most_rows)
    node.refuse("the positions are computed, and the table has more than "
                + std::to_string(most_rows) + " rows");
  if (which.of_tokens)
    for (std::int64_t token = 0; token < v.dims()[0]; ++token)
      if (which.of_tokens->of(static_cast<double>(token)) != static_cast<double>(token))
        node.refuse("the model computes another position than " + std::to_string(token)
                    + " from the token " + std::to_string(token)
                    + "; compute the positions before the model, and give them as the data");
  const auto rows = embedding(node.tensor(0), which.x);
  const bool pads = padding >= 0 && node.training();
  node.set({pads ? without_gradient_of(padding, rows, which.x) : rows, which.batch_at});
}

/// GatherND: each row of the indices is the position of a part of the data. The rows must be
/// constants.
void gather_parts(onnx_node& node) {
  node.require("batch_dims", 0, 0);
  const auto& v = node.input(0);
  const auto& indices = node.known(1, "positions");
  const auto from = v.dims();
  const auto depth = indices.dims.empty() ? 0 : indices.dims.back();
  if (depth < 1 || static_cast<std::size_t>(depth) > from.size())
    node.refuse("the positions, of shape " + shape_text(indices.dims) + ", do not fit the data, "
                + shape_text(from));
  const auto leading = from.begin() + depth;
  if (std::find(from.begin(), leading, onnx_constant::batch) != leading)
    node.refuse("the positions select samples of the batch");
  const auto numbers = elements_of(indices, node.limit(), node);
  onnx_constant which;
  which.type = onnx_constant::kind::integer;
  which.dims.assign(indices.dims.begin(), indices.dims.end() - 1);
  for (std::size_t i = 0; i < numbers.size(); i += static_cast<std::size_t>(depth)) {
    std::int64_t position = 0;
    for (std::size_t k = 0; k < static_cast<std::size_t>(depth); ++k) {
      const auto given = onnx_integer(numbers[i + k]);
      const auto x = given < 0 ? given + from[k] : given;
      if (x < 0 || x >= from[k])
        node.refuse("index " + std::to_string(given) + " is out of range: dimension "
                    + std::to_string(k) + " has " + std::to_string(from[k]) + " elements");
      position = position * from[k] + x;
    }
    which.values.push_back(static_cast<double>(position));
  }
  std::vector<std::int64_t> dims{onnx_product(from, 0, static_cast<std::size_t>(depth))};
  dims.insert(dims.end(), leading, from.end());
  const auto flat = with_dims(node, v, dims);
  node.set(flat.known ? onnx_value{picked(node, *flat.known, which, 0)}
                      : picked(node, flat, which, 0));
}

/// `count` elements that continue an axis with mirrored elements, or with copies of the last
/// element.
onnx_value continued(const onnx_node& node, const onnx_value& v, std::size_t axis,
                     const std::string& mode, std::int64_t count, bool in_front) {
  const auto extent = v.dims()[axis];
  if (mode == "edge") {
    const auto last = sliced(node, v, axis, in_front ? 0 : extent - 1, in_front ? 1 : extent);
    auto dims = v.dims();
    dims[axis] = count;
    return expanded(node, last, dims);
  }
  if (count >= extent)
    node.refuse("a padding of " + std::to_string(count) + " elements cannot mirror "
                + std::to_string(extent));
  const auto part = in_front ? sliced(node, v, axis, 1, 1 + count)
                             : sliced(node, v, axis, extent - 1 - count, extent - 1);
  return {reverse(part.x, part.graph_axis(axis)), part.batch_at};
}

void pad(onnx_node& node) {
  auto v = node.input(0);
  const auto mode = node.text("mode", "constant");
  if (mode != "constant" && mode != "reflect" && mode != "edge")
    node.refuse("attribute \"mode\" is \"" + mode + "\"; expected constant, reflect or edge");
  auto pads = node.integers("pads");
  auto value = node.real("value", 0);
  if (node.version() >= 11)
    pads = node.integers_of(1, "pads");
  if (node.has_input(2))
    value = node.number_of(2, "value");
  std::vector<std::int64_t> axes(v.rank());
  std::iota(axes.begin(), axes.end(), std::int64_t{0});
  if (node.has_input(3))
    axes = node.integers_of(3, "axes");
  if (pads.size() != 2 * axes.size())
    node.refuse("expected two pads for each dimension");
  v = {node.tensor(0), v.batch_at};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto axis = node.axis(axes[i], v.rank());
    const auto before = pads[i];
    const auto behind = pads[i + axes.size()];
    if (before == 0 && behind == 0)
      continue;
    if (v.has_batch() && axis == v.batch_at)
      node.refuse("axis " + std::to_string(axis) + " is the batch");
    const auto extent_now = v.dims()[axis];
    for (const auto x : {before, behind})
      if (x < -extent_now || x > most_padding)
        node.refuse("a padding of " + std::to_string(x) + " elements along axis "
                    + std::to_string(axis) + ", which has " + std::to_string(extent_now));
    v = sliced(node, v, axis, std::max<std::int64_t>(-before, 0),
               v.dims()[axis] - std::max<std::int64_t>(-behind, 0));
    const std::int64_t front = std::max<std::int64_t>(before, 0);
    const std::int64_t back = std::max<std::int64_t>(behind, 0);
    if (mode == "constant") {
      v = padded(node, v, axis, front, back, value);
      continue;
    }
    std::vector<onnx_value> parts{v};
    if (front > 0)
      parts.insert(parts.begin(), continued(node, v, axis, mode, front, true));
    if (back > 0)
      parts.push_back(continued(node, v, axis, mode, back, false));
    v = concatenated(node, parts, axis);
  }
  node.set(v);
}

} // namespace

onnx_value padded(const onnx_node& node, const onnx_value& v, std::size_t axis, std::int64_t before,
                  std::int64_t behind, double value) {
  auto extents = v.x.shape().extents();
  auto& extent = extents[v.graph_axis(axis)];
  const auto inside = extent;
  extent += before + behind;
  const onnx_value zeros{place(v.x, v.graph_axis(axis), before, shape{extents}), v.batch_at};
  if (value == 0)
    return zeros;
  onnx_constant frame;
  frame.dims.assign(v.rank(), 1);
  frame.dims[axis] = inside + before + behind;
  frame.values.assign(static_cast<std::size_t>(frame.dims[axis]), value);
  std::fill_n(frame.values.begin() + before, inside, 0.0);
  return node.combine(arithmetic::add, zeros, frame);
}

onnx_value concatenated(const onnx_node& node, const std::vector<onnx_value>& parts,
                        std::size_t axis) {
  if (std::ranges::all_of(parts, [](const onnx_value& v) { return v.known != nullptr; }))
    return joined(node, parts, axis);
  std::vector<expression> tensors;
  const onnx_value* first = nullptr;
  for (const auto& v : parts) {
    tensors.push_back(to_tensor(v, node.target()));
    if (v.has_batch() && first == nullptr)
      first = &v;
    if (v.rank() != parts[0].rank() || (v.has_batch() && v.batch_at != first->batch_at))
      node.refuse("the inputs have different ranks, or the batch in different places");
  }
  const auto batch_at = first == nullptr ? 0 : first->batch_at;
  const onnx_value like{tensors[0], batch_at};
  return {concat(tensors, like.graph_axis(axis)), batch_at};
}

void add_part_operators(onnx_operators& all) {
  all["Slice"] = {slice, 1, "not along the batch"};
  all["ReverseSequence"] = {reverse_sequence, 10, "equal lengths"};
  all["Split"] = {split, 1, "not along the batch"};
  all["SplitToSequence"] = {split_to_sequence, 11, "lengths are constants"};
  all["SequenceAt"] = {sequence_at, 11, "the position is a constant"};
  all["Concat"] = {concat, 1, "not along the batch"};
  all["Gather"] = {gather, 1,
                   "constant positions, or rows of a table that whole numbers of the input select"};
  all["GatherND"] = {gather_parts, 11, "constant positions; not of the batch; no batch_dims"};
  all["Pad"] = {pad, 1, "constant, reflect and edge; not along the batch"};
}

} // namespace troupe
