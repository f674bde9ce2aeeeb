// ONNX's operators that move elements, or tell of shapes.

#include "actors/model/onnx_node.hpp"
#include "kernels/image_operations.hpp"
#include "kernels/operations.hpp"
#include "kernels/sequence_operations.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

namespace troupe {

namespace {

constexpr double open = -1;
constexpr std::size_t most_runs = 64;

std::int64_t product(const std::vector<std::int64_t>& dims, std::size_t begin, std::size_t end) {
  std::int64_t result = 1;
  for (auto i = begin; i < end; ++i)
    result *= dims[i];
  return result;
}

/// Fills the open extent of `wanted`, so that there are `elements` in all. `batch` counts as 1.
std::optional<std::vector<std::int64_t>>
filled(const std::vector<double>& wanted, std::optional<std::size_t> batch, std::int64_t elements) {
  std::vector<std::int64_t> result;
  std::optional<std::size_t> gap;
  std::int64_t rest = 1;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (batch == i) {
      result.push_back(onnx_constant::batch);
      continue;
    }
    const bool is_open = wanted[i] == open || std::isnan(wanted[i]);
    if (is_open && gap)
      return std::nullopt;
    if (is_open)
      gap = i;
    const auto extent = is_open ? 1 : onnx_integer(wanted[i]);
    if (extent < 0 || (extent > 0 && rest > (std::int64_t{1} << 48) / extent))
      return std::nullopt;
    rest *= extent;
    result.push_back(extent);
  }
  if (gap) {
    if (rest == 0 || elements % rest != 0)
      return std::nullopt;
    result[*gap] = elements / rest;
  } else if (rest != elements) {
    return std::nullopt;
  }
  return result;
}

std::string wanted_text(const std::vector<double>& wanted) {
  std::string result = "(";
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    result += i > 0 ? ", " : "";
    if (std::isinf(wanted[i]))
      result += "batch";
    else
      result += std::isnan(wanted[i]) ? "?" : std::to_string(onnx_integer(wanted[i]));
  }
  return result + ")";
}

/// The shape that is meant for a tensor with a batch: which of its extents is the batch, and the
/// others, such that what stands before the batch and behind it keeps its elements.
std::optional<std::vector<std::int64_t>> around_batch(const std::vector<std::int64_t>& dims,
                                                      std::size_t batch_at,
                                                      const std::vector<double>& wanted) {
  const auto before = product(dims, 0, batch_at);
  const auto behind = product(dims, batch_at + 1, dims.size());
  const bool said = std::ranges::any_of(wanted, [](double x) { return std::isinf(x); });
  for (std::size_t at = 0; at < wanted.size(); ++at) {
    if (said && !std::isinf(wanted[at]))
      continue;
    auto result = filled(wanted, at, before * behind);
    if (result && product(*result, 0, at) == before)
      return result;
  }
  return std::nullopt;
}

} // namespace

onnx_value reshaped(const onnx_node& node, const onnx_value& v, const std::vector<double>& dims) {
  const auto from = v.dims();
  if (!v.has_batch()) {
    const auto result = filled(dims, {}, static_cast<std::int64_t>(count_elements(from)));
    if (!result)
      node.refuse("a tensor of shape " + onnx_dims_text(from) + " cannot get the shape "
                  + wanted_text(dims));
    if (v.known) {
      auto copy = *v.known;
      copy.dims = *result;
      return copy;
    }
    return shape{*result} == v.x.shape() ? v : onnx_value{reshape(v.x, shape{*result})};
  }
  const auto result = around_batch(from, v.batch_at, dims);
  if (!result)
    node.refuse("a tensor of shape " + onnx_dims_text(from) + " cannot get the shape "
                + wanted_text(dims)
                + ": elements must be as many, and the batch a dimension of its own");
  const auto at =
    static_cast<std::size_t>(std::ranges::find(*result, onnx_constant::batch) - result->begin());
  const auto extents = in_graph_order(*result, at);
  return {extents == v.x.shape() ? v.x : reshape(v.x, extents), at};
}

onnx_value with_dims(const onnx_node& node, const onnx_value& v,
                     const std::vector<std::int64_t>& dims) {
  std::vector<double> wanted;
  for (const auto x : dims)
    wanted.push_back(x == onnx_constant::batch ? onnx_constant::batch_size
                                               : static_cast<double>(x));
  return reshaped(node, v, wanted);
}

onnx_value transposed(const onnx_value& v, const std::vector<std::size_t>& axes, graph& g) {
  const auto x = to_tensor(v, g);
  std::vector<std::size_t> order;
  std::size_t batch_at = 0;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (v.has_batch() && axes[i] == v.batch_at)
      batch_at = i;
    else
      order.push_back(v.graph_axis(axes[i]));
  }
  if (v.has_batch())
    order.insert(order.begin(), 0);
  return {std::ranges::is_sorted(order) ? x : transpose(x, order), batch_at};
}

onnx_value sliced(const onnx_node& node, const onnx_value& v, std::size_t axis, std::int64_t begin,
                  std::int64_t end) {
  const auto extent = v.dims()[axis];
  if (v.has_batch() && axis == v.batch_at)
    node.refuse("axis " + std::to_string(axis) + " is the batch, of which no part can be taken");
  if (begin == 0 && end == extent)
    return v;
  return {slice(to_tensor(v, node.target()), v.graph_axis(axis), begin, end), v.batch_at};
}

namespace {

// -- shapes -------------------------------------------------------------------------------------

std::vector<double> elements_of(const onnx_constant& c, std::size_t limit, const onnx_node& node) {
  const auto n = c.elements();
  if (n > limit)
    node.refuse("a list of " + std::to_string(n) + " numbers is too long");
  std::vector<double> result;
  for (std::size_t i = 0; i < n; ++i)
    result.push_back(c.at(i));
  return result;
}

void reshape(onnx_node& node) {
  const auto& v = node.input(0);
  const auto& wanted = node.known(1, "shape");
  const bool zeros = node.integer("allowzero", 0) != 0;
  auto dims = elements_of(wanted, 64, node);
  const auto from = v.dims();
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] != 0 || zeros)
      continue;
    if (i >= from.size())
      node.refuse("extent " + std::to_string(i) + " is to be kept, and there is none");
    dims[i] =
      from[i] == onnx_constant::batch ? onnx_constant::batch_size : static_cast<double>(from[i]);
  }
  node.set(reshaped(node, v, dims));
}

void flatten(onnx_node& node) {
  const auto& v = node.input(0);
  const auto dims = v.dims();
  const auto given = node.integer("axis", 1);
  const auto axis =
    given == static_cast<std::int64_t>(dims.size()) ? dims.size() : node.axis(given, dims.size());
  std::vector<double> wanted(2, 1);
  for (std::size_t i = 0; i < dims.size(); ++i) {
    auto& extent = wanted[i < axis ? 0 : 1];
    extent *=
      dims[i] == onnx_constant::batch ? onnx_constant::batch_size : static_cast<double>(dims[i]);
  }
  node.set(reshaped(node, v, wanted));
}

std::vector<std::size_t> axes_of(onnx_node& node, std::size_t rank) {
  auto given = node.integers("axes");
  if (node.has_input(1))
    given = node.integers_of(1, "axes");
  std::vector<std::size_t> result;
  for (const auto x : given)
    result.push_back(node.axis(x, rank));
  std::ranges::sort(result);
  if (std::ranges::adjacent_find(result) != result.end())
    node.refuse("an axis is named twice");
  return result;
}

void squeeze(onnx_node& node) {
  const auto& v = node.input(0);
  auto dims = v.dims();
  auto axes = axes_of(node, dims.size());
  if (axes.empty() && !node.has_input(1) && !node.has("axes"))
    for (std::size_t i = 0; i < dims.size(); ++i)
      if (dims[i] == 1)
        axes.push_back(i);
  for (auto i = axes.size(); i-- > 0;) {
    if (dims[axes[i]] != 1)
      node.refuse("dimension " + std::to_string(axes[i]) + " of " + onnx_dims_text(v.dims())
                  + " is not 1");
    dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(axes[i]));
  }
  node.set(with_dims(node, v, dims));
}

void unsqueeze(onnx_node& node) {
  const auto& v = node.input(0);
  auto dims = v.dims();
  const auto count =
    node.has_input(1) ? node.integers_of(1, "axes").size() : node.integers("axes").size();
  for (const auto axis : axes_of(node, dims.size() + count))
    dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(axis), 1);
  node.set(with_dims(node, v, dims));
}

void transpose(onnx_node& node) {
  const auto& v = node.input(0);
  const auto rank = v.rank();
  std::vector<std::size_t> axes(rank);
  std::iota(axes.begin(), axes.end(), std::size_t{0});
  std::ranges::reverse(axes);
  if (const auto given = node.integers("perm"); !given.empty()) {
    axes.clear();
    for (const auto x : given)
      axes.push_back(node.axis(x, rank));
  }
  auto sorted = axes;
  std::ranges::sort(sorted);
  if (axes.size() != rank || std::ranges::adjacent_find(sorted) != sorted.end())
    node.refuse("attribute \"perm\" does not name each dimension of " + onnx_dims_text(v.dims())
                + " once");
  node.set(transposed(v, axes, node.target()));
}

void expand(onnx_node& node) {
  const auto& v = node.input(0);
  onnx_constant target;
  const auto wanted = elements_of(node.known(1, "shape"), 64, node);
  for (const auto x : wanted) {
    if (std::isnan(x))
      node.refuse("the shape is computed from the size of the batch");
    target.dims.push_back(std::isinf(x) ? onnx_constant::batch : onnx_integer(x));
  }
  if (v.known) {
    target.values = {0};
    node.set(combine(
      *v.known, target, [](double x, double) { return x; }, node.limit()));
    return;
  }
  const auto rank = std::max(v.rank(), target.dims.size());
  auto dims = target.dims;
  dims.insert(dims.begin(), rank - dims.size(), 1);
  auto own = v.dims();
  own.insert(own.begin(), rank - own.size(), 1);
  const auto aligned_v = with_dims(node, v, own);
  // A batch that was 1 when the model was written may stand there as 1.
  if (v.has_batch() && dims[aligned_v.batch_at] == 1)
    dims[aligned_v.batch_at] = onnx_constant::batch;
  if (v.has_batch() && dims[aligned_v.batch_at] != onnx_constant::batch)
    node.refuse("the batch cannot be expanded to " + std::to_string(dims[aligned_v.batch_at]));
  const auto found = std::ranges::find(dims, onnx_constant::batch);
  const auto at = found == dims.end() ? 0 : static_cast<std::size_t>(found - dims.begin());
  const auto to = found == dims.end() ? shape{dims} : in_graph_order(dims, at);
  auto from = aligned_v.x;
  if (found != dims.end() && !v.has_batch())
    from = troupe::reshape(from, in_graph_order(own, at));
  node.set({troupe::expand(from, common_shape(from.shape(), to)), at});
}

// -- parts --------------------------------------------------------------------------------------

struct cut {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t step = 1;
};

/// Positions as NumPy understands them.
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
  cut result{place(begin), place(end), step};
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
  std::vector<std::int64_t> positions;
  for (auto i = how.begin; how.step > 0 ? i < how.end : i > how.end; i += how.step)
    positions.push_back(i);
  result.dims[axis] = static_cast<std::int64_t>(positions.size());
  if (c.uniform()) {
    result.values = c.values;
    return result;
  }
  if (result.elements() > limit)
    node.refuse("a constant of shape " + onnx_dims_text(result.dims) + " is too large");
  const auto before = product(c.dims, 0, axis);
  const auto behind = product(c.dims, axis + 1, c.dims.size());
  for (std::int64_t i = 0; i < before; ++i)
    for (const auto position : positions)
      for (std::int64_t k = 0; k < behind; ++k)
        result.values.push_back(
          c.values[static_cast<std::size_t>((i * extent + position) * behind + k)]);
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
    node.refuse("starts, ends, axes and steps are not as many");
  return x;
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
        node.refuse("axis " + std::to_string(axis)
                    + " is the batch, of which no part can be taken");
      continue;
    }
    const auto how = cut_of(node, x.begins[i], x.ends[i], x.steps[i], extent);
    if (v.known) {
      v = part_of(*v.known, axis, how, node.limit(), node);
      continue;
    }
    if (how.step != 1)
      node.refuse("a step is " + std::to_string(how.step) + "; expected 1");
    v = sliced(node, v, axis, how.begin, how.end);
  }
  node.set(v);
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
  if (sizes.empty()) {
    const auto each = count == 0 ? 0 : (extent + count - 1) / count;
    for (std::int64_t left = extent; left > 0 && each > 0; left -= each)
      sizes.push_back(std::min(each, left));
  }
  std::int64_t total = 0;
  for (const auto x : sizes) {
    if (x < 0 || x > extent)
      node.refuse("a part has " + std::to_string(x) + " of " + std::to_string(extent)
                  + " elements");
    total += x;
  }
  if (sizes.size() != node.outputs() || total != extent)
    node.refuse("the parts do not make up the " + std::to_string(extent) + " elements of axis "
                + std::to_string(axis));
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (v.known)
      node.set(i, part_of(*v.known, axis, {begin, begin + sizes[i], 1}, node.limit(), node));
    else
      node.set(i, sliced(node, v, axis, begin, begin + sizes[i]));
    begin += sizes[i];
  }
}

onnx_constant joined(const onnx_node& node, std::size_t axis) {
  onnx_constant result;
  for (std::size_t i = 0; i < node.inputs(); ++i) {
    const auto& c = *node.input(i).known;
    if (i == 0) {
      result.type = c.type;
      result.dims = c.dims;
      continue;
    }
    auto expected = result.dims;
    if (c.dims.size() == expected.size())
      expected[axis] = c.dims[axis];
    if (c.dims != expected)
      node.refuse("shapes " + onnx_dims_text(result.dims) + " and " + onnx_dims_text(c.dims)
                  + " differ in more than axis " + std::to_string(axis));
    result.dims[axis] += c.dims[axis];
  }
  if (result.elements() > node.limit())
    node.refuse("a constant of shape " + onnx_dims_text(result.dims) + " is too large");
  const auto before = product(result.dims, 0, axis);
  for (std::int64_t k = 0; k < before; ++k)
    for (std::size_t i = 0; i < node.inputs(); ++i) {
      const auto& c = *node.input(i).known;
      const auto length = product(c.dims, axis, c.dims.size());
      for (std::int64_t j = 0; j < length; ++j)
        result.values.push_back(c.at(static_cast<std::size_t>(k * length + j)));
    }
  return result;
}

void concat(onnx_node& node) {
  if (node.inputs() == 0)
    node.refuse("it has no inputs");
  const auto rank = node.input(0).rank();
  const auto axis = node.axis(node.integer("axis", 1), rank);
  bool all_known = true;
  for (std::size_t i = 0; i < node.inputs(); ++i)
    all_known = all_known && node.input(i).known;
  if (all_known) {
    node.set(joined(node, axis));
    return;
  }
  std::vector<expression> parts;
  const onnx_value* first = nullptr;
  for (std::size_t i = 0; i < node.inputs(); ++i) {
    const auto& v = node.input(i);
    parts.push_back(node.tensor(i));
    if (v.has_batch() && (first == nullptr || !first->has_batch()))
      first = &v;
    if (v.rank() != rank || (v.has_batch() && v.batch_at != first->batch_at))
      node.refuse("the inputs have different ranks, or the batch in different places");
  }
  if (first == nullptr)
    first = &node.input(0);
  const onnx_value like{parts[0], first->batch_at};
  node.set({troupe::concat(parts, like.graph_axis(axis)), first->batch_at});
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
    node.refuse("a constant of shape " + onnx_dims_text(result.dims) + " is too large");
  const auto extent = from.dims[axis];
  const auto before = product(from.dims, 0, axis);
  const auto behind = product(from.dims, axis + 1, from.dims.size());
  const auto count = which.elements();
  for (std::int64_t i = 0; i < before; ++i)
    for (std::size_t k = 0; k < count; ++k) {
      auto position = onnx_integer(which.at(k));
      position += position < 0 ? extent : 0;
      if (position < 0 || position >= extent)
        node.refuse("index " + std::to_string(onnx_integer(which.at(k))) + " of "
                    + std::to_string(extent) + " elements is not there");
      for (std::int64_t j = 0; j < behind; ++j)
        result.values.push_back(
          from.at(static_cast<std::size_t>((i * extent + position) * behind + j)));
    }
  return result;
}

/// Elements of a tensor at positions that are known, in runs of those that follow one another.
onnx_value picked(const onnx_node& node, const onnx_value& v, const onnx_constant& which,
                  std::size_t axis) {
  const auto extent = v.dims()[axis];
  const auto positions = elements_of(which, node.limit(), node);
  if (positions.empty())
    node.refuse("no elements are picked");
  std::vector<std::pair<std::int64_t, std::int64_t>> runs;
  for (const auto x : positions) {
    const auto given = onnx_integer(x);
    const auto position = given < 0 ? given + extent : given;
    if (position < 0 || position >= extent)
      node.refuse("index " + std::to_string(given) + " of " + std::to_string(extent)
                  + " elements is not there");
    if (!runs.empty() && runs.back().second == position)
      ++runs.back().second;
    else
      runs.emplace_back(position, position + 1);
  }
  if (runs.size() > most_runs)
    node.refuse("more than " + std::to_string(most_runs)
                + " elements are picked that do not follow "
                  "one another");
  auto result = sliced(node, v, axis, runs[0].first, runs[0].second);
  if (runs.size() > 1) {
    std::vector<expression> parts;
    for (const auto& [begin, end] : runs)
      parts.push_back(to_tensor(sliced(node, v, axis, begin, end), node.target()));
    result = {troupe::concat(parts, v.graph_axis(axis)), v.batch_at};
  }
  auto dims = result.dims();
  const auto at = dims.begin() + static_cast<std::ptrdiff_t>(axis);
  dims.insert(dims.erase(at), which.dims.begin(), which.dims.end());
  return with_dims(node, result, dims);
}

void gather(onnx_node& node) {
  const auto& v = node.input(0);
  const auto& which = node.input(1);
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
    node.refuse("positions that are computed can only pick rows of a table (entries, n)");
  if (which.x.node().type != dtype::int32)
    node.refuse("the positions are not whole numbers");
  node.set({embedding(node.tensor(0), which.x), which.batch_at});
}

// Zeros on both sides.
void pad(onnx_node& node) {
  auto v = node.input(0);
  if (const auto mode = node.text("mode", "constant"); mode != "constant")
    node.refuse("attribute \"mode\" is \"" + mode + "\"; expected constant");
  auto pads = node.integers("pads");
  auto value = node.real("value", 0);
  if (node.version() >= 11)
    pads = node.integers_of(1, "pads");
  if (node.has_input(2))
    value = node.number_of(2, "value");
  if (value != 0)
    node.refuse("the value is " + std::to_string(value) + "; expected 0");
  std::vector<std::int64_t> axes(v.rank());
  std::iota(axes.begin(), axes.end(), std::int64_t{0});
  if (node.has_input(3))
    axes = node.integers_of(3, "axes");
  if (pads.size() != 2 * axes.size())
    node.refuse("the pads are not two per dimension");
  v = {node.tensor(0), v.batch_at};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto axis = node.axis(axes[i], v.rank());
    const auto before = pads[i];
    const auto behind = pads[i + axes.size()];
    if (before == 0 && behind == 0)
      continue;
    if (v.has_batch() && axis == v.batch_at)
      node.refuse("axis " + std::to_string(axis) + " is the batch");
    v = sliced(node, v, axis, std::max<std::int64_t>(-before, 0),
               v.dims()[axis] - std::max<std::int64_t>(-behind, 0));
    auto extents = v.x.shape().extents();
    auto& extent = extents[v.graph_axis(axis)];
    for (const auto more : {before, behind})
      if (more > (std::int64_t{1} << 48))
        node.refuse("a padding of " + std::to_string(more) + " elements");
    extent += std::max<std::int64_t>(before, 0) + std::max<std::int64_t>(behind, 0);
    v.x = place(v.x, v.graph_axis(axis), std::max<std::int64_t>(before, 0), shape{extents});
  }
  node.set(v);
}

// -- types and constants ------------------------------------------------------------------------

void cast(onnx_node& node) {
  using onnx::TensorProto;
  const auto& v = node.input(0);
  const auto to = node.integer("to", 0);
  node.ignore("saturate");
  const bool real = to == TensorProto::FLOAT || to == TensorProto::DOUBLE;
  const bool whole = to == TensorProto::INT64 || to == TensorProto::INT32;
  if (!real && !whole && to != TensorProto::BOOL)
    node.refuse("attribute \"to\" is " + std::to_string(to)
                + "; expected FLOAT, DOUBLE, INT32, INT64 or BOOL");
  if (!v.known) {
    const bool from_whole = v.x.node().type == dtype::int32;
    if (to == TensorProto::BOOL || (whole && !from_whole))
      node.refuse("a tensor of real numbers cannot become one of whole numbers");
    const auto dims = v.x.shape();
    node.set(real && from_whole ? onnx_value{to_float(v.x, dims), v.batch_at} : v);
    return;
  }
  auto result = *v.known;
  result.type = real ? onnx_constant::kind::real
    : whole          ? onnx_constant::kind::integer
                     : onnx_constant::kind::boolean;
  for (auto& x : result.values) {
    if (real && v.known->type == onnx_constant::kind::integer && !std::isfinite(x))
      node.refuse("the size of the batch becomes a real number");
    if (result.type == onnx_constant::kind::boolean)
      x = x != 0 ? 1 : 0;
    else if (whole)
      x = std::trunc(x);
  }
  node.set(std::move(result));
}

void constant(onnx_node& node) {
  onnx_constant result;
  if (const auto* x = node.attribute("value"); x != nullptr && x->has_t()) {
    result = read_onnx_tensor(x->t());
  } else if (node.has("value_float")) {
    result.values = {node.real("value_float", 0)};
  } else if (node.has("value_int")) {
    result.type = onnx_constant::kind::integer;
    result.values = {static_cast<double>(node.integer("value_int", 0))};
  } else if (node.has("value_floats")) {
    result.values = node.reals("value_floats");
    result.dims = {static_cast<std::int64_t>(result.values.size())};
  } else if (node.has("value_ints")) {
    result.type = onnx_constant::kind::integer;
    for (const auto x : node.integers("value_ints"))
      result.values.push_back(static_cast<double>(x));
    result.dims = {static_cast<std::int64_t>(result.values.size())};
  } else {
    node.refuse("its value is none of value, value_float, value_floats, value_int, value_ints");
  }
  node.set(std::move(result));
}

void constant_of_shape(onnx_node& node) {
  onnx_constant result;
  result.values = {0};
  if (const auto* x = node.attribute("value"); x != nullptr && x->has_t()) {
    const auto value = read_onnx_tensor(x->t());
    if (value.elements() != 1)
      node.refuse("attribute \"value\" has other than one element");
    result.type = value.type;
    result.values = value.values;
  }
  for (const auto x : elements_of(node.known(0, "shape"), 64, node)) {
    if (std::isnan(x) || x < 0)
      node.refuse("an extent is negative, or computed from the size of the batch");
    result.dims.push_back(std::isinf(x) ? onnx_constant::batch : onnx_integer(x));
  }
  result.elements();
  node.set(std::move(result));
}

void shape_of(onnx_node& node) {
  const auto dims = node.input(0).dims();
  const auto n = static_cast<std::int64_t>(dims.size());
  const auto place = [&](std::int64_t x) {
    return std::clamp<std::int64_t>(x < 0 ? x + n : x, 0, n);
  };
  const auto begin = place(node.integer("start", 0));
  const auto end = std::max(begin, place(node.integer("end", n)));
  onnx_constant result;
  result.type = onnx_constant::kind::integer;
  result.dims = {end - begin};
  for (auto i = begin; i < end; ++i) {
    const auto extent = dims[static_cast<std::size_t>(i)];
    result.values.push_back(extent == onnx_constant::batch ? onnx_constant::batch_size
                                                           : static_cast<double>(extent));
  }
  node.set(std::move(result));
}

void size_of_tensor(onnx_node& node) {
  const auto& v = node.input(0);
  onnx_constant result;
  result.type = onnx_constant::kind::integer;
  result.values = {v.has_batch() ? std::nan("") : static_cast<double>(count_elements(v.dims()))};
  node.set(std::move(result));
}

void range_of_numbers(onnx_node& node) {
  const auto begin = node.number_of(0, "start");
  const auto end = node.number_of(1, "limit");
  const auto step = node.number_of(2, "delta");
  const auto count = std::ceil((end - begin) / step);
  if (!std::isfinite(count) || count > static_cast<double>(node.limit()))
    node.refuse("it has no end, too many numbers, or is computed from the size of the batch");
  onnx_constant result;
  result.type = node.known(0, "start").type;
  for (int i = 0; i < count; ++i)
    result.values.push_back(begin + i * step);
  result.dims = {static_cast<std::int64_t>(result.values.size())};
  node.set(std::move(result));
}

// -- what changes nothing -----------------------------------------------------------------------

void dropout(onnx_node& node) {
  const auto ratio = node.has_input(1) ? node.number_of(1, "ratio") : node.real("ratio", 0.5);
  node.ignore("seed");
  if (node.version() < 7)
    node.require("is_test", 1, 0);
  const bool drops = node.has_input(2) && node.number_of(2, "training mode") != 0 && ratio != 0;
  if (drops && node.training()) {
    node.refuse_output(1, "mask");
    const auto& v = node.input(0);
    node.set({troupe::dropout(node.tensor(0), ratio, node.proto().name() + node.proto().output(0)),
              v.batch_at});
    return;
  }
  node.set(node.input(0));
  onnx_constant all;
  all.type = onnx_constant::kind::boolean;
  all.dims = node.input(0).dims();
  all.values = {1};
  node.set(1, std::move(all));
}

} // namespace

void add_movement_operators(onnx_operators& all) {
  all["Reshape"] = reshape;
  all["Flatten"] = flatten;
  all["Squeeze"] = squeeze;
  all["Unsqueeze"] = unsqueeze;
  all["Transpose"] = transpose;
  all["Expand"] = expand;
  all["Slice"] = slice;
  all["Split"] = split;
  all["Concat"] = concat;
  all["Gather"] = gather;
  all["Pad"] = pad;
  all["Cast"] = cast;
  all["Constant"] = constant;
  all["ConstantOfShape"] = constant_of_shape;
  all["Shape"] = shape_of;
  all["Size"] = size_of_tensor;
  all["Range"] = range_of_numbers;
  all["Dropout"] = dropout;
  all["Identity"] = [](onnx_node& node) { node.set(node.input(0)); };
}

} // namespace troupe
