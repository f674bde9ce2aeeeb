// Functions that give an ONNX value another shape or another order of its dimensions, or that take
// a part of its elements.

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

/// Returns the shape `wanted` with its unknown extent (-1 or NaN) computed, so that the shape has
/// `elements` elements. The dimension `batch` counts as 1. Returns nothing if this is impossible.
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
  const auto is_open = [&](std::size_t at) { return wanted[at] == open || std::isnan(wanted[at]); };
  std::vector<std::size_t> places(wanted.size());
  std::iota(places.begin(), places.end(), 0);
  // In a model for any number of samples, a 1 is an extent of its own: (1, -1, 5) has the batch in
  // the middle. In a model exported for one sample, it may be the batch.
  if (example != 1)
    std::stable_partition(places.begin(), places.end(), is_open);
  for (const auto at : places) {
    // The batch can be here only if the wanted extent is open, 0, 1 (the exporter may have used one
    // sample), or the size of the exporter's example. With any other number, samples would be
    // mixed.
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
  std::vector<std::int64_t> dims; ///< the separate dimensions
  std::vector<std::size_t> merged;
};

/// Divides dimension `at` of the wanted shape into (outer, batch, inner). The products of the
/// extents before and after the batch are then the same as in v. Therefore, the order of elements
/// stays the same, and samples are not mixed.
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
    return reshaped(node, apart, dims); // throws an error that names the shape
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
      node.refuse("a tensor of shape " + shape_text(from) + " cannot get the shape "
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
    node.refuse("a tensor of shape " + shape_text(from) + " cannot get the shape "
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

} // namespace troupe
