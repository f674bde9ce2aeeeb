// ONNX's operators on images.

#include "actors/model/onnx/padding.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace troupe {

namespace {

/// A window in one or two dimensions, with the padding on each side of the image.
struct sliding_window {
  std::vector<std::int64_t> kernel;
  std::vector<std::int64_t> strides;
  std::vector<std::int64_t> dilations;
  std::vector<std::int64_t> before;
  std::vector<std::int64_t> behind;
};

/// An image (batch, channels, height, width). `spatial` is the number of dimensions of pixels in
/// ONNX: if it is 1, the height is 1.
struct image {
  expression x;
  std::size_t spatial = 2;
};

image image_of(onnx_node& node) {
  const auto& v = node.input(0);
  const auto x = node.tensor(0);
  if ((v.rank() != 3 && v.rank() != 4) || !v.has_batch() || v.batch_at != 0)
    node.refuse("an input (batch, channels, height, width) or (batch, channels, length) was "
                "expected, found "
                + shape_text(v.dims()));
  if (v.rank() == 4)
    return {x, 2};
  const auto dims = x.shape();
  return {reshape(x, {shape::batch, dims[1], 1, dims[2]}), 1};
}

onnx_value result_of(expression y, const image& from) {
  if (from.spatial == 2)
    return y;
  const auto dims = y.shape();
  return reshape(y, {shape::batch, dims[1], dims[3]});
}

/// The number of elements that the padding modes SAME_UPPER and SAME_LOWER add to a dimension.
std::int64_t same_padding(std::int64_t extent, std::int64_t kernel, std::int64_t stride) {
  const auto positions = (extent + stride - 1) / stride;
  return std::max<std::int64_t>((positions - 1) * stride + kernel - extent, 0);
}

sliding_window sliding_of(onnx_node& node, const image& from, std::vector<std::int64_t> kernel) {
  const auto n = from.spatial;
  sliding_window x;
  x.kernel = node.integers("kernel_shape", std::move(kernel));
  x.strides = node.integers("strides", std::vector<std::int64_t>(n, 1));
  auto pads = node.integers("pads", std::vector<std::int64_t>(2 * n, 0));
  x.dilations = node.integers("dilations", std::vector<std::int64_t>(n, 1));
  const auto automatic = node.text("auto_pad", "NOTSET");
  const auto extent = [&](std::size_t i) { return from.x.shape()[4 - n + i]; };
  if (x.kernel.size() != n || x.strides.size() != n || x.dilations.size() != n
      || pads.size() != 2 * n)
    node.refuse("kernel_shape, strides, dilations and pads do not fit an image of "
                + std::to_string(n) + " dimensions");
  constexpr std::int64_t most = std::int64_t{1} << 24;
  const auto sane = [&](std::int64_t value) { return value >= 0 && value <= most; };
  const auto positive = [&](std::int64_t value) { return value >= 1 && value <= most; };
  if (!std::ranges::all_of(x.kernel, sane) || !std::ranges::all_of(pads, sane)
      || !std::ranges::all_of(x.strides, positive) || !std::ranges::all_of(x.dilations, positive))
    node.refuse("a size, stride, dilation or padding is negative, or more than 16 million");
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
    for (std::size_t i = 0; i < n; ++i) {
      const auto reach = x.dilations[i] * (x.kernel[i] - 1) + 1;
      const auto total = same_padding(extent(i), reach, x.strides[i]);
      pads[i] = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      pads[n + i] = total - pads[i];
    }
  } else if (automatic == "VALID") {
    std::ranges::fill(pads, 0);
  } else if (automatic != "NOTSET") {
    node.refuse("attribute \"auto_pad\" is \"" + automatic + "\"");
  }
  x.before.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(n));
  x.behind.assign(pads.begin() + static_cast<std::ptrdiff_t>(n), pads.end());
  return x;
}

window window_of(const sliding_window& x) {
  window result;
  result.width = x.kernel.back();
  result.stride_x = x.strides.back();
  result.dilation_x = x.dilations.back();
  result.pad_x = x.before.back();
  if (x.kernel.size() == 2) {
    result.height = x.kernel[0];
    result.stride_y = x.strides[0];
    result.dilation_y = x.dilations[0];
    result.pad_y = x.before[0];
  }
  return result;
}

/// True if the padding is one that the graph's operations support: equal on both sides and smaller
/// than the kernel.
bool plain(const sliding_window& x) {
  for (std::size_t i = 0; i < x.kernel.size(); ++i)
    if (x.before[i] != x.behind[i] || x.before[i] >= x.dilations[i] * (x.kernel[i] - 1) + 1)
      return false;
  return true;
}

/// Replaces padding that the graph's operations do not support: adds zeros around the image, and
/// sets the padding of the window to 0.
expression surrounded(expression x, sliding_window& how) {
  const auto n = how.kernel.size();
  for (std::size_t i = 0; i < n; ++i) {
    if (how.before[i] == 0 && how.behind[i] == 0)
      continue;
    auto extents = x.shape().extents();
    extents[4 - n + i] += how.before[i] + how.behind[i];
    x = place(x, 4 - n + i, how.before[i], shape{extents});
    how.before[i] = how.behind[i] = 0;
  }
  return x;
}

void convolution(onnx_node& node) {
  auto from = image_of(node);
  auto w = node.tensor(1);
  if (w.shape().rank() != from.spatial + 2 || w.shape().has_batch())
    node.refuse("weights " + to_string(w.shape()) + " do not fit an image "
                + shape_text(node.input(0).dims()));
  auto kernel = w.shape().extents();
  kernel.erase(kernel.begin(), kernel.begin() + 2);
  auto how = sliding_of(node, from, kernel);
  if (how.kernel != kernel)
    node.refuse("attribute \"kernel_shape\" is not that of the weights");
  if (from.spatial == 1) {
    const auto dims = w.shape();
    w = reshape(w, {dims[0], dims[1], 1, dims[2]});
  }
  const auto groups = node.integer("group", 1);
  if (!plain(how))
    from.x = surrounded(from.x, how);
  auto over = window_of(how);
  over.groups = groups;
  auto y = conv2d(from.x, w, over);
  if (node.has_input(2))
    y = add_channel_bias(y, node.tensor(2));
  node.set(result_of(y, from));
}

void transposed_convolution(onnx_node& node) {
  const auto from = image_of(node);
  const auto n = from.spatial;
  auto w = node.tensor(1);
  if (w.shape().rank() != n + 2 || w.shape().has_batch())
    node.refuse("weights " + to_string(w.shape()) + " do not fit an image "
                + shape_text(node.input(0).dims()));
  auto kernel = w.shape().extents();
  kernel.erase(kernel.begin(), kernel.begin() + 2);
  const auto how = sliding_of(node, from, kernel);
  const auto extra = node.integers("output_padding", std::vector<std::int64_t>(n, 0));
  if (how.kernel != kernel || extra.size() != n)
    node.refuse("kernel_shape and output_padding do not fit the weights " + to_string(w.shape()));
  if (node.text("auto_pad", "NOTSET") != "NOTSET" || node.has("output_shape"))
    node.refuse("expected \"pads\" and \"output_padding\" in place of \"auto_pad\" and "
                "\"output_shape\"");
  if (how.before != how.behind)
    node.refuse("the padding differs between two sides");
  if (n == 1) {
    const auto dims = w.shape();
    w = reshape(w, {dims[0], dims[1], 1, dims[2]});
  }
  auto over = window_of(how);
  over.groups = node.integer("group", 1);
  auto y = conv_transpose2d(from.x, w, over, n == 2 ? extra[0] : 0, extra.back());
  if (node.has_input(2))
    y = add_channel_bias(y, node.tensor(2));
  node.set(result_of(y, from));
}

/// The window of a pooling operator.
window pool_of(onnx_node& node, const sliding_window& how) {
  auto result = window_of(how);
  if (std::ranges::any_of(how.dilations, [](auto x) { return x != 1; }))
    node.refuse("attribute \"dilations\" is not 1");
  result.ceil_mode = node.integer("ceil_mode", 0) != 0;
  return result;
}

/// The offset of the last window along dimension i from the beginning of the padding; -1 if the
/// window does not fit. With ceil_mode, the number of windows is rounded up, but a window that
/// would begin beyond the image is left out.
std::int64_t last_window(std::int64_t extent, const sliding_window& how, std::size_t i,
                         bool ceil_mode) {
  const auto stride = how.strides[i];
  const auto room = extent + how.before[i] + how.behind[i] - how.kernel[i];
  if (room < 0)
    return -1;
  const auto begin = (room + (ceil_mode ? stride - 1 : 0)) / stride * stride;
  return ceil_mode && begin >= extent + how.before[i] ? begin - stride : begin;
}

/// The number of elements between the end of the image and the end of the last window along
/// dimension i, with ceil_mode.
std::int64_t behind_last(std::int64_t extent, const sliding_window& how, std::size_t i) {
  const auto begin = last_window(extent, how, i, true);
  return begin < 0 ? how.behind[i]
                   : std::max<std::int64_t>(begin + how.kernel[i] - extent - how.before[i], 0);
}

/// True if the window has the same positions with ceil_mode and the padding how.before on both
/// sides. For a mean, the last position must also contain the same number of elements.
bool same_with_equal_sides(const image& from, const sliding_window& how, bool ceil_mode,
                           bool mean) {
  auto equal = how;
  equal.behind = how.before;
  for (std::size_t i = 0; i < from.spatial; ++i) {
    const auto extent = from.x.shape()[4 - from.spatial + i];
    const auto last = last_window(extent, how, i, ceil_mode);
    const auto padding = std::min(how.before[i], how.behind[i]);
    if (how.before[i] >= how.kernel[i] || last != last_window(extent, equal, i, true)
        || (mean && how.before[i] != how.behind[i]
            && last + how.kernel[i] > how.before[i] + extent + padding))
      return false;
  }
  return true;
}

void max_pooling(onnx_node& node) {
  auto from = image_of(node);
  auto how = sliding_of(node, from, {});
  node.require("storage_order", 0, 0);
  node.refuse_output(1, "positions");
  auto over = pool_of(node, how);
  if (!plain(how) && same_with_equal_sides(from, how, over.ceil_mode, false)) {
    over.ceil_mode = true;
  } else if (!plain(how)) {
    for (std::size_t i = 0; i < from.spatial; ++i) {
      constexpr auto least = -std::numeric_limits<double>::infinity();
      if (std::max(how.before[i], how.behind[i]) >= std::max<std::int64_t>(how.kernel[i], 1)
          || how.kernel[i] > static_cast<std::int64_t>(node.limit()))
        node.refuse("the padding is as large as the window");
      if (over.ceil_mode)
        how.behind[i] = behind_last(from.x.shape()[4 - from.spatial + i], how, i);
      from.x = padded(node, from.x, 4 - from.spatial + i, how.before[i], how.behind[i], least).x;
      how.before[i] = how.behind[i] = 0;
    }
    over = window_of(how);
  }
  node.set(result_of(max_pool(from.x, over), from));
}

/// For each position of the window along one dimension: the factor that turns a mean over the whole
/// window into a mean over the part inside the image.
std::vector<double> shares(std::int64_t extent, std::int64_t kernel, std::int64_t stride,
                           std::int64_t before, std::int64_t behind) {
  std::vector<double> result;
  for (auto begin = -before; begin + kernel <= extent + behind; begin += stride) {
    const auto inside = std::min(begin + kernel, extent) - std::max<std::int64_t>(begin, 0);
    result.push_back(static_cast<double>(kernel)
                     / static_cast<double>(std::max<std::int64_t>(inside, 1)));
  }
  return result;
}

void average_pooling(onnx_node& node) {
  auto from = image_of(node);
  auto how = sliding_of(node, from, {});
  const bool zeros_count = node.integer("count_include_pad", 0) != 0;
  const auto padding = how;
  const auto over = pool_of(node, how);
  if (over.ceil_mode && zeros_count && same_with_equal_sides(from, how, true, true))
    how.behind = how.before;
  const bool padded = std::ranges::any_of(how.before, [](auto x) { return x != 0; })
    || std::ranges::any_of(how.behind, [](auto x) { return x != 0; });
  if (over.ceil_mode && padded && (!zeros_count || !plain(how)))
    node.refuse("\"ceil_mode\" with padding needs \"count_include_pad\" and equal sides");
  const auto dims = from.x.shape();
  if (!plain(how))
    from.x = surrounded(from.x, how);
  auto window = window_of(how);
  window.ceil_mode = over.ceil_mode;
  onnx_value y{average_pool(from.x, window)};
  for (std::size_t i = 0; i < from.spatial && !zeros_count; ++i) {
    if (padding.before[i] == 0 && padding.behind[i] == 0)
      continue;
    if (y.dims()[4 - from.spatial + i] > static_cast<std::int64_t>(node.limit()))
      node.refuse("an image of shape " + to_string(dims) + " is too large to be padded");
    onnx_constant factors;
    factors.values = shares(dims[4 - from.spatial + i], how.kernel[i], how.strides[i],
                            padding.before[i], padding.behind[i]);
    factors.dims = {static_cast<std::int64_t>(factors.values.size())};
    factors.dims.resize(from.spatial - i, 1);
    y = node.combine(arithmetic::multiply, y, factors);
  }
  node.set(result_of(y.x, from));
}

/// Turns y, which has one value per channel, into (batch, channels, 1, 1, ...).
onnx_value one_per_channel(const onnx_node& node, const onnx_value& v, expression y) {
  auto dims = v.dims();
  std::fill(dims.begin() + 2, dims.end(), 1);
  return with_dims(node, y, dims);
}

onnx_rows pixels_of(const onnx_node& node) {
  const auto& v = node.input(0);
  if (v.rank() < 3 || (v.has_batch() && v.batch_at != 0))
    node.refuse("expected an input (batch, channels, ...), found " + shape_text(v.dims()));
  std::vector<std::size_t> axes(v.rank() - 2);
  std::iota(axes.begin(), axes.end(), std::size_t{2});
  return rows_over(node, v, axes);
}

void global_average(onnx_node& node) {
  const auto pixels = pixels_of(node);
  const auto n = pixels.x.shape().last();
  const auto y = scale(sum_last(pixels.x), 1 / static_cast<double>(n));
  node.set(one_per_channel(node, node.input(0), y));
}

void global_max(onnx_node& node) {
  node.set(one_per_channel(node, node.input(0), max_last(pixels_of(node).x)));
}

} // namespace

void add_image_operators(onnx_operators& all) {
  all["Conv"] = {convolution, 1, "one or two dimensions"};
  all["ConvTranspose"] = {
    transposed_convolution, 1,
    "one or two dimensions; pads are equal on both sides, no auto_pad, no output_shape"};
  all["MaxPool"] = {max_pooling, 1, "one or two dimensions; dilations of 1, no positions"};
  all["AveragePool"] = {average_pooling, 1, "one or two dimensions; dilations of 1"};
  all["GlobalAveragePool"] = {global_average, 1};
  all["GlobalMaxPool"] = {global_max, 1};
}

} // namespace troupe
