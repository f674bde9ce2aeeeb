// ONNX's operators that change a tensor's shape or the order of its dimensions.

#include "actors/model/onnx/node.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/sequence_operations.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

namespace troupe {

namespace {

constexpr double open = -1;

/// Computes the open extent of `wanted` so that the total is `elements`. `batch` counts as 1.
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

/// Finds the intended shape of a tensor with a batch: the position of the batch and all other
/// extents. The dimensions before the batch keep their number of elements, and so do those after
/// it.
std::optional<std::vector<std::int64_t>> around_batch(const std::vector<std::int64_t>& dims,
                                                      std::size_t batch_at,
                                                      const std::vector<double>& wanted) {
  const auto before = onnx_product(dims, 0, batch_at);
  const auto behind = onnx_product(dims, batch_at + 1, dims.size());
  const bool said = std::ranges::any_of(wanted, [](double x) { return std::isinf(x); });
  for (std::size_t at = 0; at < wanted.size(); ++at) {
    if (said && !std::isinf(wanted[at]))
      continue;
    auto result = filled(wanted, at, before * behind);
    if (result && onnx_product(*result, 0, at) == before)
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
                + ": the number of elements must stay the same, and the batch must stay a "
                  "separate dimension");
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
    node.refuse("axis " + std::to_string(axis) + " is the batch, which cannot be sliced");
  if (begin == 0 && end == extent)
    return v;
  return {slice(to_tensor(v, node.target()), v.graph_axis(axis), begin, end), v.batch_at};
}

std::vector<double> elements_of(const onnx_constant& c, std::size_t limit, const onnx_node& node) {
  const auto n = c.elements();
  if (n > limit)
    node.refuse("a list of " + std::to_string(n) + " numbers is too long");
  std::vector<double> result;
  for (std::size_t i = 0; i < n; ++i)
    result.push_back(c.at(i));
  return result;
}

namespace {

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
      node.refuse("extent " + std::to_string(i) + " is 0 (keep), but the input has no such extent");
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
  return node.axes(given, rank);
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
      node.refuse("the shape depends on the size of the batch");
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
  // If the model was written with a batch of 1, the shape may contain 1 for the batch.
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

} // namespace

void add_shape_operators(onnx_operators& all) {
  all["Reshape"] = reshape;
  all["Flatten"] = flatten;
  all["Squeeze"] = squeeze;
  all["Unsqueeze"] = unsqueeze;
  all["Transpose"] = transpose;
  all["Expand"] = expand;
}

} // namespace troupe
