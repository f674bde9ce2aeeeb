// ONNX's operators that change a tensor's shape or the order of its dimensions.

#include "actors/model/onnx/node.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/sequence_operations.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace troupe {

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
      node.refuse("dimension " + std::to_string(axes[i]) + " of " + shape_text(v.dims())
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

/// The first dimension of each group of merged dimensions, followed by the number of all
/// dimensions.
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
    node.refuse("attribute \"perm\" does not name each dimension of " + shape_text(v.dims())
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

/// How Resize finds the elements of the input from which an element of the output is computed.
struct resizing {
  std::string mode;
  std::string place;
  std::string rounding;
  double cubic = -0.75;
  bool only_inside = false;

  /// The position in the input of element i of the output, along one dimension.
  double position(double i, double scale, double from, double to) const {
    if (place == "align_corners")
      return to == 1 ? 0 : i * (from - 1) / (to - 1);
    if (place == "asymmetric")
      return i / scale;
    if (place == "tf_half_pixel_for_nn")
      return (i + 0.5) / scale;
    if (place == "half_pixel_symmetric") // keeps the middle if `to` was rounded
      return from / 2 * (1 - to / (from * scale)) + (i + 0.5) / scale - 0.5;
    return place == "pytorch_half_pixel" && to == 1 ? 0 : (i + 0.5) / scale - 0.5;
  }

  double nearest(double x, double scale) const {
    if (rounding == "simple") // before operator set 11
      return scale < 1 ? std::ceil(x) : std::floor(x);
    if (rounding == "floor")
      return std::floor(x);
    if (rounding == "ceil")
      return std::ceil(x);
    return rounding == "round_prefer_ceil" ? std::floor(x + 0.5) : std::ceil(x - 0.5);
  }

  /// True if each element of the input is only repeated `scale` times.
  bool repeats(double scale) const {
    return mode == "nearest" && scale == std::trunc(scale)
      && ((place == "asymmetric" && (rounding == "floor" || rounding == "simple"))
          || (place == "half_pixel" && rounding.starts_with("round_")));
  }

  /// The weight of an element at this distance (Keys, 1981, for cubic).
  double weight(double distance) const {
    const auto d = std::abs(distance);
    if (mode == "linear")
      return std::max(0.0, 1 - d);
    if (d <= 1)
      return ((cubic + 2) * d - (cubic + 3)) * d * d + 1;
    return d < 2 ? ((cubic * d - 5 * cubic) * d + 8 * cubic) * d - 4 * cubic : 0;
  }

  /// The elements of the input, and their weights, for each element of the output. An element with
  /// weight 0 is left out.
  blend_table table(double scale, std::int64_t from, std::int64_t to) const {
    blend_table result(static_cast<std::size_t>(to));
    for (std::int64_t i = 0; i < to; ++i) {
      auto& terms = result[static_cast<std::size_t>(i)];
      const auto x =
        position(static_cast<double>(i), scale, static_cast<double>(from), static_cast<double>(to));
      const auto add = [&](double at, double w) {
        const auto row =
          static_cast<std::size_t>(std::clamp<std::int64_t>(onnx_integer(at), 0, from - 1));
        if (!terms.empty() && terms.back().position == row)
          terms.back().weight += w; // both positions were moved to the edge
        else
          terms.push_back({row, w});
      };
      if (mode == "nearest") {
        add(nearest(x, scale), 1);
        continue;
      }
      const auto outside = [&](double at) {
        return only_inside && (at < 0 || at >= static_cast<double>(from));
      };
      double sum = 0;
      for (auto at = std::floor(x) - 1; at <= std::floor(x) + 2; ++at)
        sum += outside(at) ? 0 : weight(x - at);
      for (auto at = std::floor(x) - 1; at <= std::floor(x) + 2; ++at)
        if (!outside(at) && weight(x - at) != 0)
          add(at, weight(x - at) / sum);
    }
    return result;
  }
};

resizing resizing_of(onnx_node& node) {
  constexpr std::int64_t with_coordinates = 11;
  const bool old = node.version() < with_coordinates || node.op() == "Upsample";
  resizing result;
  result.mode = node.text("mode", "nearest");
  result.place = node.text("coordinate_transformation_mode", old ? "asymmetric" : "half_pixel");
  result.rounding = node.text("nearest_mode", old ? "simple" : "round_prefer_floor");
  result.cubic = node.real("cubic_coeff_a", -0.75);
  result.only_inside = node.integer("exclude_outside", 0) != 0;
  node.ignore("extrapolation_value");
  node.require("antialias", 0, 0);
  if (result.mode != "nearest" && result.mode != "linear" && result.mode != "cubic")
    node.refuse("attribute \"mode\" is \"" + result.mode + "\"; expected nearest, linear or cubic");
  if (result.place == "tf_crop_and_resize")
    node.refuse("parts of images (tf_crop_and_resize) are not supported");
  const auto check = [&](std::string_view name, const std::string& value,
                         const std::vector<std::string_view>& known) {
    if (std::ranges::find(known, value) == known.end())
      node.refuse("attribute \"" + std::string{name} + "\" is \"" + value
                  + "\", which troupe does not know");
  };
  check("coordinate_transformation_mode", result.place,
        {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
         "tf_half_pixel_for_nn"});
  if (!old || node.has("nearest_mode"))
    check("nearest_mode", result.rounding,
          {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"});
  if (node.text("keep_aspect_ratio_policy", "stretch") != "stretch" || node.has("axes"))
    node.refuse("attributes \"axes\" and \"keep_aspect_ratio_policy\" are not supported");
  return result;
}

/// Blends neighbors along each dimension that changes, beginning with the last dimension. If
/// elements are only repeated, nothing is blended. An infinite element, or NaN, affects only the
/// elements that are computed from it.
void resize(onnx_node& node) {
  const auto how = resizing_of(node);
  onnx_value v{node.tensor(0), node.input(0).batch_at};
  const bool by_size = node.has_input(3);
  const std::size_t at = node.version() < 11 || node.op() == "Upsample" ? 1 : by_size ? 3 : 2;
  std::vector<double> wanted;
  if (node.has("scales"))
    wanted = node.reals("scales");
  else
    wanted = elements_of(node.known(at, by_size ? "sizes" : "scales"), 64, node);
  const auto dims = v.dims();
  if (wanted.size() != dims.size())
    node.refuse("expected a size or scale for each dimension");
  for (auto i = dims.size(); i-- > 0;) {
    const auto from = static_cast<double>(dims[i]);
    if (dims[i] == onnx_constant::batch) {
      if (by_size ? wanted[i] > 1 && wanted[i] != static_cast<double>(node.example())
              && wanted[i] != onnx_constant::batch_size
                  : wanted[i] != 1)
        node.refuse("the batch is scaled");
      continue;
    }
    // In float, as in onnxruntime: 0.7 times 10 pixels are 7, and in double they would be 6.
    const double product = static_cast<float>(dims[i]) * static_cast<float>(wanted[i]);
    const auto to = std::floor(by_size ? wanted[i] : product);
    // With align_corners, a length that is not a whole number is refused. ONNX's tests divide by
    // the length before it is rounded, other programs by the rounded length.
    if (how.place == "align_corners" && !by_size && to != product)
      node.refuse("dimension " + std::to_string(i) + " with aligned corners would get "
                  + std::to_string(product) + " elements; expected a whole number");
    const auto limit = static_cast<double>(std::max<std::size_t>(node.limit(), 1 << 24));
    if (!(to >= 1) || !(from >= 1) || to > limit)
      node.refuse("dimension " + std::to_string(i) + " would get " + std::to_string(to)
                  + " elements");
    const auto scale = by_size ? to / from : wanted[i];
    if (scale == 1)
      continue;
    if (how.repeats(scale)) {
      auto apart = v.dims();
      apart.insert(apart.begin() + static_cast<std::ptrdiff_t>(i) + 1, 1);
      v = with_dims(node, v, apart);
      apart[i + 1] = onnx_integer(scale);
      v = expanded(node, v, apart);
      apart.erase(apart.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      apart[i] = onnx_integer(to);
      v = with_dims(node, v, apart);
      continue;
    }
    constexpr std::size_t most_numbers = 8; // up to four positions, each with a weight
    node.charge(most_numbers * static_cast<std::size_t>(to));
    v.x = blend(v.x, v.graph_axis(i), how.table(scale, dims[i], onnx_integer(to)));
  }
  node.set(v);
}

/// DepthToSpace: moves each size * size channels of (batch, channels, height, width) into a block
/// of size x size pixels. SpaceToDepth does the reverse.
template <bool to_space>
void pixels(onnx_node& node) {
  const auto& v = node.input(0);
  const auto size = node.integer("blocksize", 0);
  const bool columns = node.text("mode", "DCR") == "CRD";
  const auto dims = v.dims();
  if (v.rank() != 4 || size < 1 || size > (1 << 12))
    node.refuse("expected (batch, channels, height, width) and a positive block size");
  const auto block = size * size;
  if (to_space ? dims[1] % block != 0 : dims[2] % size != 0 || dims[3] % size != 0)
    node.refuse("the block size " + std::to_string(size) + " does not divide " + shape_text(dims));
  const auto n = dims[0];
  const auto c = to_space ? dims[1] / block : dims[1];
  const auto h = to_space ? dims[2] : dims[2] / size;
  const auto w = to_space ? dims[3] : dims[3] / size;
  auto& g = node.target();
  if (!to_space) {
    const auto apart = with_dims(node, v, {n, c, h, size, w, size});
    node.set(with_dims(node, transposed(apart, {0, 3, 5, 1, 2, 4}, g), {n, c * block, h, w}));
    return;
  }
  const auto apart = columns ? with_dims(node, v, {n, c, size, size, h, w})
                             : with_dims(node, v, {n, size, size, c, h, w});
  const auto turned =
    columns ? transposed(apart, {0, 1, 4, 2, 5, 3}, g) : transposed(apart, {0, 3, 4, 1, 5, 2}, g);
  node.set(with_dims(node, turned, {n, c, h * size, w * size}));
}

} // namespace

onnx_value expanded(const onnx_node& node, const onnx_value& v,
                    const std::vector<std::int64_t>& wanted) {
  auto dims = wanted;
  // If the model was exported with a fixed batch, the shape contains the size of the example.
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
  all["Resize"] = {resize, 10,
                   "nearest, linear and cubic; no tf_crop_and_resize, axes or antialias"};
  all["Upsample"] = {resize, 1, "from operator set 7 on"};
  all["DepthToSpace"] = {pixels<true>, 1};
  all["SpaceToDepth"] = {pixels<false>, 1};
}

} // namespace troupe
