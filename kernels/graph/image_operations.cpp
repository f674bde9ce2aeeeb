#include "kernels/graph/image_operations.hpp"

#include "kernels/graph/node_builder.hpp"

#include <utility>
#include <vector>

namespace troupe {

namespace {

expression append_image(operation op, std::initializer_list<expression> inputs, shape dims,
                        const window& how = {}) {
  for (auto input : inputs)
    check_float(op, input);
  auto x = make_node(op, std::move(dims));
  x.window = how;
  return append(std::move(x), inputs);
}

void check_image(operation op, expression x) {
  if (x.shape().rank() != 4 || !x.shape().has_batch())
    refuse(op, describe(x) + " is not of the form (batch, channels, height, width)");
}

/// The shape of the result of sliding the window over images of shape `image`. The result has
/// `channels` channels.
shape slid(operation op, const shape& image, const window& how, std::int64_t channels) {
  const bool sane = how.height >= 1 && how.width >= 1 && how.stride_y >= 1 && how.stride_x >= 1
    && how.dilation_y >= 1 && how.dilation_x >= 1 && how.pad_y >= 0 && how.pad_x >= 0
    && how.pad_y < how.extent_y() && how.pad_x < how.extent_x();
  auto window = std::to_string(how.height) + " x " + std::to_string(how.width);
  if (how.dilation_y != 1 || how.dilation_x != 1)
    window +=
      ", dilated by " + std::to_string(how.dilation_y) + " and " + std::to_string(how.dilation_x);
  if (!sane)
    refuse(op,
           "a window of " + window + ", strides " + std::to_string(how.stride_y) + " and "
             + std::to_string(how.stride_x) + ", padding " + std::to_string(how.pad_y) + " and "
             + std::to_string(how.pad_x)
             + ": expected sizes and strides of at least 1 and a padding smaller than the window");
  if (image[2] < 1 || image[3] < 1)
    refuse(op, "images " + to_string(image) + " without pixels");
  if (image[2] + 2 * how.pad_y < how.extent_y() || image[3] + 2 * how.pad_x < how.extent_x())
    refuse(op, "a window of " + window + " does not fit into images " + to_string(image));
  return {shape::batch, channels, how.rows(image[2]), how.columns(image[3])};
}

/// The shape of the result of a convolution.
shape convolved(operation op, const shape& image, const window& how, std::int64_t filters) {
  if (how.ceil_mode)
    refuse(op, "ceil_mode is only for pooling");
  return slid(op, image, how, filters);
}

/// The shape of the result of pooling.
shape pooled(operation op, const shape& image, const window& how) {
  if (how.dilation_y != 1 || how.dilation_x != 1)
    refuse(op, "a window with dilation; only convolutions can have it");
  return slid(op, image, how, image[1]);
}

} // namespace

// -- shapes -------------------------------------------------------------------------------------

expression reshape(expression x, shape dims) {
  const bool same =
    dims.has_batch() == x.shape().has_batch() && dims.elements(1) == x.shape().elements(1);
  if (!same)
    refuse(operation::reshape,
           describe(x) + " to " + to_string(dims) + ": expected the same number of elements");
  auto result = make_node(operation::reshape, std::move(dims));
  result.type = x.node().type;
  if (result.type != dtype::int32)
    check_float(operation::reshape, x);
  return append(std::move(result), {x});
}

expression flatten(expression x) {
  return reshape(x, {shape::batch, static_cast<std::int64_t>(x.shape().elements(1))});
}

// -- convolutions -------------------------------------------------------------------------------

expression conv2d(expression x, expression w, const window& how) {
  constexpr auto op = operation::conv2d;
  check_image(op, x);
  const auto& dims = w.shape();
  const bool fits = dims.rank() == 4 && !dims.has_batch() && how.groups >= 1
    && dims[1] * how.groups == x.shape()[1] && dims[0] % how.groups == 0 && dims[0] > 0
    && dims[2] == how.height && dims[3] == how.width;
  if (!fits)
    refuse(op,
           describe(x) + " and " + describe(w) + " do not fit: expected weights of shape (filters, "
             + std::to_string(x.shape()[1]) + " / groups, " + std::to_string(how.height) + ", "
             + std::to_string(how.width) + "), groups " + std::to_string(how.groups));
  return append_image(op, {x, w}, convolved(op, x.shape(), how, dims[0]), how);
}

expression conv2d_input_gradient(expression dy, expression w, const window& how, shape dims) {
  constexpr auto op = operation::conv2d_input_gradient;
  check_image(op, dy);
  if (dy.shape() != convolved(op, dims, how, w.shape()[0]))
    refuse(op,
           describe(dy) + " does not have the shape that the window gives for " + to_string(dims));
  return append_image(op, {dy, w}, std::move(dims), how);
}

expression conv_transpose2d(expression x, expression w, const window& how, std::int64_t extra_rows,
                            std::int64_t extra_columns) {
  constexpr auto op = operation::conv2d_input_gradient;
  check_image(op, x);
  const auto& from = x.shape();
  const auto& dims = w.shape();
  const bool fits = dims.rank() == 4 && !dims.has_batch() && how.groups >= 1 && dims[0] == from[1]
    && from[1] % how.groups == 0 && dims[2] == how.height && dims[3] == how.width;
  if (!fits)
    refuse(op,
           describe(x) + " and " + describe(w) + " do not fit: expected weights of shape ("
             + std::to_string(from[1]) + ", filters / groups, " + std::to_string(how.height) + ", "
             + std::to_string(how.width) + "), and groups that divide the channels");
  if (extra_rows < 0 || extra_columns < 0 || extra_rows >= how.stride_y
      || extra_columns >= how.stride_x)
    refuse(op,
           "an output padding of " + std::to_string(extra_rows) + " and "
             + std::to_string(extra_columns) + "; expected at least 0 and less than the strides");
  constexpr auto most = std::int64_t{1} << 48;
  if (from[2] > most / how.stride_y || from[3] > most / how.stride_x)
    refuse(op, "the image made of " + describe(x) + " would have more than 2^48 elements");
  const auto rows = (from[2] - 1) * how.stride_y - 2 * how.pad_y + how.extent_y() + extra_rows;
  const auto columns =
    (from[3] - 1) * how.stride_x - 2 * how.pad_x + how.extent_x() + extra_columns;
  if (rows < 1 || columns < 1)
    refuse(op, "the padding leaves nothing of " + describe(x));
  return conv2d_input_gradient(x, w, how, {shape::batch, dims[1] * how.groups, rows, columns});
}

expression conv2d_weight_gradient(expression x, expression dy, const window& how) {
  constexpr auto op = operation::conv2d_weight_gradient;
  check_image(op, x);
  check_image(op, dy);
  const auto filters = dy.shape()[1];
  if (dy.shape() != convolved(op, x.shape(), how, filters))
    refuse(op, describe(dy) + " does not have the shape that the window gives for " + describe(x));
  return append_image(op, {x, dy}, {filters, x.shape()[1] / how.groups, how.height, how.width},
                      how);
}

expression add_channel_bias(expression x, expression b) {
  constexpr auto op = operation::add_channel_bias;
  if (x.shape().rank() < 2 || b.shape() != shape{x.shape()[1]})
    refuse(op, describe(x) + " and " + describe(b) + ": expected a bias per channel");
  return append_image(op, {x, b}, x.shape());
}

expression sum_channels(expression x) {
  if (x.shape().rank() < 2)
    refuse(operation::sum_channels, describe(x) + " has no channels");
  return append_image(operation::sum_channels, {x}, {x.shape()[1]});
}

expression broadcast_channels(expression x, shape dims) {
  if (dims.rank() < 2 || x.shape() != shape{dims[1]})
    refuse(operation::broadcast_channels,
           describe(x) + " to " + to_string(dims) + ": expected an element per channel");
  return append_image(operation::broadcast_channels, {x}, std::move(dims));
}

// -- pooling ------------------------------------------------------------------------------------

expression max_pool(expression x, const window& how) {
  return max_pool_select(x, x, how);
}

expression max_pool_select(expression v, expression x, const window& how) {
  constexpr auto op = operation::max_pool_select;
  check_image(op, x);
  if (v.shape() != x.shape())
    refuse(op, describe(v) + " and " + describe(x) + " have different shapes");
  return append_image(op, {v, x}, pooled(op, x.shape(), how), how);
}

expression max_pool_gradient(expression dy, expression x, const window& how) {
  constexpr auto op = operation::max_pool_gradient;
  check_image(op, x);
  if (dy.shape() != pooled(op, x.shape(), how))
    refuse(op, describe(dy) + " does not have the shape that the window gives for " + describe(x));
  return append_image(op, {dy, x}, x.shape(), how);
}

expression average_pool(expression x, const window& how) {
  constexpr auto op = operation::average_pool;
  check_image(op, x);
  return append_image(op, {x}, pooled(op, x.shape(), how), how);
}

expression average_pool_gradient(expression dy, const window& how, shape dims) {
  constexpr auto op = operation::average_pool_gradient;
  check_image(op, dy);
  if (dy.shape() != pooled(op, dims, how))
    refuse(op,
           describe(dy) + " does not have the shape that the window gives for " + to_string(dims));
  return append_image(op, {dy}, std::move(dims), how);
}

expression global_average_pool(expression x) {
  check_image(operation::average_pool, x);
  window all;
  all.height = x.shape()[2];
  all.width = x.shape()[3];
  return average_pool(x, all);
}

// -- layers -------------------------------------------------------------------------------------

expression conv2d_layer(expression x, const std::string& name, std::int64_t filters,
                        const window& how, activation after, bool bias) {
  check_image(operation::conv2d, x);
  if (filters < 1 || how.groups < 1 || x.shape()[1] % how.groups != 0 || filters % how.groups != 0)
    throw input_error("layer \"" + name + "\": " + std::to_string(filters) + " filters over "
                      + std::to_string(x.shape()[1]) + " channels in " + std::to_string(how.groups)
                      + " groups; groups must divide both, and there must be a filter");
  auto& owner = x.owner();
  const shape dims{filters, x.shape()[1] / how.groups, how.height, how.width};
  auto y = conv2d(x, owner.variable(name + ".weight", dims, initial_weights(after)), how);
  if (bias)
    y = add_channel_bias(y, owner.variable(name + ".bias", {filters}));
  return activate(y, after);
}

} // namespace troupe
