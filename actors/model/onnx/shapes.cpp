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
    if (const auto k = onnx_constant::batches(wanted[i]); k != 0)
      result += (k == 1 ? "" : std::to_string(k) + " ") + "batch";
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
                                                      const std::vector<double>& wanted,
                                                      std::int64_t example) {
  const auto before = onnx_product(dims, 0, batch_at);
  const auto behind = onnx_product(dims, batch_at + 1, dims.size());
  const bool said =
    std::ranges::any_of(wanted, [](double x) { return x == onnx_constant::batch_size; });
  for (std::size_t at = 0; at < wanted.size(); ++at) {
    // The batch can be here only if the number is free, 1 (the exporter may have used one sample),
    // or the size of the exporter's example. Any other number mixes samples.
    const bool may_be = !(wanted[at] > 1) || wanted[at] == static_cast<double>(example);
    if (said ? wanted[at] != onnx_constant::batch_size : !may_be)
      continue;
    auto result = filled(wanted, at, before * behind);
    if (result && onnx_product(*result, 0, at) == before)
      return result;
  }
  return std::nullopt;
}

/// How a shape merges the batch with other dimensions.
struct merging {
  std::vector<std::int64_t> dims; ///< before they are merged
  std::vector<std::size_t> merged;
};

/// Dimension `at` of the wanted shape as (outer, batch, inner), so that as many elements are before
/// the batch and behind it as in v. Then the elements keep their order, and each sample its own.
std::optional<merging> merged_at(const onnx_value& v, const std::vector<double>& wanted,
                                 std::size_t at, std::int64_t example) {
  const auto from = v.dims();
  const auto before = onnx_product(from, 0, v.batch_at);
  const auto all = before * onnx_product(from, v.batch_at + 1, from.size());
  const bool is_open = wanted[at] == open || std::isnan(wanted[at]);
  const auto given = onnx_constant::batches(wanted[at]) != 0 ? onnx_constant::batches(wanted[at])
    : example != 0 ? onnx_integer(wanted[at] / static_cast<double>(example))
                   : 0;
  std::int64_t others = 1;
  std::int64_t outer = before;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (i == at)
      continue;
    if (!(wanted[i] >= 1) || wanted[i] > static_cast<double>(all))
      return std::nullopt;
    const auto extent = onnx_integer(wanted[i]);
    if (extent > all / others || (i < at && outer % extent != 0))
      return std::nullopt;
    others *= extent;
    outer /= i < at ? extent : 1;
  }
  const auto together = all / others;
  const bool fits = is_open
    || (given == together
        && (onnx_constant::batches(wanted[at]) != 0
            || wanted[at] == static_cast<double>(given) * static_cast<double>(example)));
  if (all % others != 0 || !fits || outer == 0 || together % outer != 0)
    return std::nullopt;
  merging result;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (i != at) {
      result.dims.push_back(onnx_integer(wanted[i]));
      result.merged.push_back(1);
      continue;
    }
    result.dims.insert(result.dims.end(), {outer, onnx_constant::batch, together / outer});
    result.merged.push_back(3);
  }
  return result;
}

/// Computes the open extent of a wanted shape in which another extent is a multiple of the batch.
std::vector<double> closed(const onnx_value& v, std::vector<double> wanted) {
  const auto is_multiple = [](double x) { return onnx_constant::batches(x) != 0; };
  const auto is_open = [](double x) { return x == open || std::isnan(x); };
  if (!v.has_batch() || std::ranges::count_if(wanted, is_multiple) != 1
      || std::ranges::count_if(wanted, is_open) != 1)
    return wanted;
  const auto all = static_cast<double>(count_elements(v.dims()));
  double others = 1;
  for (const auto x : wanted)
    others *= is_open(x) ? 1 : is_multiple(x) ? x / onnx_constant::batch_size : x;
  if (const auto rest = all / others; rest == std::trunc(rest))
    *std::ranges::find_if(wanted, is_open) = rest;
  return wanted;
}

} // namespace

onnx_value reshaped_or_merged(const onnx_node& node, const onnx_value& v,
                              const std::vector<double>& wanted) {
  const auto dims = closed(v, wanted);
  const auto apart = unfolded(v);
  const auto from = v.dims();
  if (!v.has_batch() || around_batch(from, v.batch_at, dims, node.example()))
    return reshaped(node, apart, dims);
  std::optional<merging> found;
  for (std::size_t at = 0; at < dims.size(); ++at) {
    auto next = merged_at(v, dims, at, node.example());
    if (next && found)
      node.refuse("it is not clear which dimension of " + wanted_text(dims)
                  + " contains the batch; export the model with an open batch, or one of 2");
    found = next ? std::move(next) : found;
  }
  if (!found)
    return reshaped(node, apart, dims); // which refuses it
  auto result = with_dims(node, apart, found->dims);
  result.merged = found->merged;
  return result;
}

onnx_value reshaped(const onnx_node& node, const onnx_value& v, const std::vector<double>& dims) {
  const auto from = v.dims();
  const auto batch = std::ranges::find(from, onnx_constant::batch);
  if (batch == from.end()) {
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
  const auto result =
    around_batch(from, static_cast<std::size_t>(batch - from.begin()), dims, node.example());
  if (!result)
    node.refuse("a tensor of shape " + onnx_dims_text(from) + " cannot get the shape "
                + wanted_text(dims)
                + ": the number of elements must stay the same, and the batch must stay a "
                  "separate dimension");
  if (v.known) { // such as initial states, which are the same for each sample
    auto copy = *v.known;
    copy.dims = *result;
    return copy;
  }
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

namespace {

onnx_constant transposed(const onnx_constant& c, const std::vector<std::size_t>& axes) {
  onnx_constant result;
  result.type = c.type;
  std::vector<std::size_t> strides;
  for (const auto axis : axes) {
    result.dims.push_back(c.dims[axis]);
    strides.push_back(static_cast<std::size_t>(onnx_product(c.dims, axis + 1, c.dims.size())));
  }
  if (c.uniform()) {
    result.values = c.values;
    return result;
  }
  const auto extents = onnx_dims_of_a_sample(result.dims);
  for (std::size_t i = 0; i < c.values.size(); ++i) {
    std::size_t from = 0;
    auto rest = i;
    for (auto axis = axes.size(); axis-- > 0;) {
      const auto extent = static_cast<std::size_t>(extents[axis]);
      from += rest % extent * strides[axis];
      rest /= extent;
    }
    result.values.push_back(c.values[from]);
  }
  return result;
}

} // namespace

onnx_value transposed(const onnx_value& v, const std::vector<std::size_t>& axes, graph& g) {
  if (v.known)
    return transposed(*v.known, axes);
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
  const auto& v = node.folded_input(0);
  const auto& wanted = node.known(1, "shape");
  const bool zeros = node.integer("allowzero", 0) != 0;
  auto dims = elements_of(wanted, 64, node);
  const auto from = extents_of(v);
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] != 0 || zeros)
      continue;
    if (i >= from.size())
      node.refuse("extent " + std::to_string(i) + " is 0 (keep), but the input has no such extent");
    dims[i] = from[i];
  }
  node.set(reshaped_or_merged(node, v, dims));
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

/// For each group of consecutive dimensions, its first one; and the number of dimensions.
std::vector<std::size_t> beginnings(const std::vector<std::size_t>& merged) {
  std::vector<std::size_t> result{0};
  for (const auto count : merged)
    result.push_back(result.back() + count);
  return result;
}

void transpose(onnx_node& node) {
  const auto& v = node.folded_input(0);
  const auto rank = v.merged.empty() ? v.rank() : v.merged.size();
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
  if (v.merged.empty()) {
    node.set(transposed(v, axes, node.target()));
    return;
  }
  const auto begin = beginnings(v.merged);
  std::vector<std::size_t> apart;
  std::vector<std::size_t> merged;
  for (const auto axis : axes) {
    for (auto i = begin[axis]; i < begin[axis + 1]; ++i)
      apart.push_back(i);
    merged.push_back(v.merged[axis]);
  }
  auto result = transposed(unfolded(v), apart, node.target());
  result.merged = merged;
  node.set(result);
}

void expand(onnx_node& node) {
  const auto& v = node.input(0);
  onnx_constant target;
  const auto wanted = elements_of(node.known(1, "shape"), 64, node);
  for (const auto x : wanted) {
    if (!onnx_constant::is_number(x) && x != onnx_constant::batch_size)
      node.refuse("the shape depends on the size of the batch");
    target.dims.push_back(x == onnx_constant::batch_size ? onnx_constant::batch : onnx_integer(x));
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
  node.set(expanded(node, with_dims(node, v, own), dims));
}

/// The factor by which Resize enlarges dimension i.
std::int64_t factor_of(onnx_node& node, std::size_t i, std::int64_t extent) {
  const bool by_size = node.has_input(3);
  const auto& wanted = node.known(by_size ? 3 : 2, by_size ? "sizes" : "scales");
  if (wanted.elements() != node.input(0).rank())
    node.refuse("expected a size or scale for each dimension");
  const auto x = wanted.at(i);
  if (by_size && (extent == onnx_constant::batch || x == static_cast<double>(extent)))
    return 1;
  const auto factor = by_size ? x / static_cast<double>(extent) : x;
  constexpr double most = 64;
  if (!(factor >= 1 && factor <= most) || factor != std::trunc(factor)
      || (extent == onnx_constant::batch && factor != 1))
    node.refuse("dimension " + std::to_string(i) + " is scaled by " + std::to_string(factor)
                + "; expected a whole number from 1 to 64, and 1 for the batch");
  return onnx_integer(factor);
}

/// Repeats each pixel. With whole factors, the nearest pixel is the same by all rules that are
/// accepted.
void resize(onnx_node& node) {
  const auto place = node.text("coordinate_transformation_mode", "half_pixel");
  const auto rounding = node.text("nearest_mode", "round_prefer_floor");
  if (node.text("mode", "nearest") != "nearest")
    node.refuse("attribute \"mode\" is not nearest");
  if (!(place == "asymmetric" && rounding == "floor")
      && !(place == "half_pixel" && rounding.starts_with("round_")))
    node.refuse(
      "expected coordinates \"asymmetric\" with \"floor\", or \"half_pixel\" with rounding; "
      "found \""
      + place + "\" with \"" + rounding + "\"");
  for (const auto name : {"cubic_coeff_a", "exclude_outside", "extrapolation_value", "antialias",
                          "keep_aspect_ratio_policy"})
    node.ignore(name);
  if (node.has("axes"))
    node.refuse("attribute \"axes\" is not supported");
  auto v = node.input(0);
  for (std::size_t i = 0; i < v.rank(); ++i) {
    auto dims = v.dims();
    const auto factor = factor_of(node, i, dims[i]);
    if (factor == 1)
      continue;
    auto apart = dims;
    apart.insert(apart.begin() + static_cast<std::ptrdiff_t>(i) + 1, 1);
    v = with_dims(node, v, apart);
    apart[i + 1] = factor;
    dims[i] *= factor;
    v = with_dims(node, expanded(node, v, apart), dims);
  }
  node.set(v);
}

} // namespace

onnx_value expanded(const onnx_node& node, const onnx_value& v,
                    const std::vector<std::int64_t>& wanted) {
  auto dims = wanted;
  // If the model was written with a fixed batch, the shape contains its size.
  if (v.has_batch() && (dims[v.batch_at] == 1 || dims[v.batch_at] == node.example()))
    dims[v.batch_at] = onnx_constant::batch;
  if (v.has_batch() && dims[v.batch_at] != onnx_constant::batch)
    node.refuse("the batch cannot be expanded to " + std::to_string(dims[v.batch_at]));
  const auto found = std::ranges::find(dims, onnx_constant::batch);
  const auto at = found == dims.end() ? 0 : static_cast<std::size_t>(found - dims.begin());
  const auto to = found == dims.end() ? shape{dims} : in_graph_order(dims, at);
  auto from = to_tensor(v, node.target());
  if (found != dims.end() && !v.has_batch())
    from = troupe::reshape(from, in_graph_order(v.dims(), at));
  return {troupe::expand(from, common_shape(from.shape(), to)), at};
}

void add_shape_operators(onnx_operators& all) {
  all["Reshape"] = {
    reshape, 1,
    "the shape is a constant; the batch stays apart, or is merged and later split again"};
  all["Flatten"] = {flatten, 1, "the batch stays apart"};
  all["Squeeze"] = {squeeze, 1};
  all["Unsqueeze"] = {unsqueeze, 1};
  all["Transpose"] = {transpose, 1};
  all["Expand"] = {expand, 8, "the shape is a constant"};
  all["Resize"] = {resize, 10, "the nearest pixel, whole factors"};
}

} // namespace troupe
