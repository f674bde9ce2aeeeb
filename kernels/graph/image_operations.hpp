#pragma once

#include "kernels/graph/graph.hpp"
#include "kernels/graph/operations.hpp"

#include <string>

namespace troupe {

// Images have the shape (batch, channels, height, width), as in PyTorch. Each function throws
// input_error, with the names and shapes of the tensors, if shapes and window do not fit.

/// x in another shape with the same elements in row-major order. The batch stays dimension 0. No
/// element is copied. x may be int32; then only embedding() and to_float() can read the result.
expression reshape(expression x, shape dims);
/// Reshapes (batch, ...) to (batch, elements of a sample).
expression flatten(expression x);

/// Cross-correlation of x (batch, C, H, W) with the weights w (O, C / groups, window.height,
/// window.width). O is the number of filters. Result: (batch, O, window.rows(H),
/// window.columns(W)).
///   y[n,o,i,j] = sum_{c,u,v} w[o,c,u,v] x[n, c', i stride_y + u dilation_y - pad_y,
///                                         j stride_x + v dilation_x - pad_x],
/// where c' is the c-th channel of the group of filter o. Outside the image, x is 0.
expression conv2d(expression x, expression w, const window& how);
/// The gradient of conv2d with respect to x: d sum(y * dy) / dx. x has shape `dims`. The result is
/// linear in dy and in w.
expression conv2d_input_gradient(expression dy, expression w, const window& how, shape dims);
/// Transposed convolution (Zeiler et al., 2010; PyTorch's ConvTranspose2d): x (batch, C, H, W) and
/// w (C, O / groups, window.height, window.width) to (batch, O, H', W'). The result is
/// conv2d_input_gradient(x, w) for images of height H' = (H - 1) stride_y - 2 pad_y +
/// window.extent_y() + extra_rows, and of width W', computed in the same way. extra_rows and
/// extra_columns are at least 0 and less than the strides.
expression conv_transpose2d(expression x, expression w, const window& how,
                            std::int64_t extra_rows = 0, std::int64_t extra_columns = 0);
/// The gradient of conv2d with respect to w: d sum(y * dy) / dw. The result is linear in x and in
/// dy.
expression conv2d_weight_gradient(expression x, expression dy, const window& how);

/// x (batch, C, ...) + b (C): b[c] is added to all elements of channel c.
expression add_channel_bias(expression x, expression b);
/// (batch, C, ...) -> (C): sum over samples and positions.
expression sum_channels(expression x);
/// (C) -> dims = (batch, C, ...): repeats each element over its channel.
expression broadcast_channels(expression x, shape dims);

/// The largest element under the window, for each channel. If several elements are equal, the first
/// one gets the gradient. NaN counts as larger than any number.
expression max_pool(expression x, const window& how);
/// Finds the largest element of x under the window, and returns the element of v at the same
/// position. v and x have the same shape.
expression max_pool_select(expression v, expression x, const window& how);
/// The adjoint of max_pool_select: for each window, adds its element of dy at the position of the
/// largest element of x under the window. The result is 0 elsewhere.
expression max_pool_gradient(expression dy, expression x, const window& how);
/// The mean of the elements under the window. The zeros of the padding count (PyTorch's
/// count_include_pad). With window::ceil_mode, positions beyond the padding do not count.
expression average_pool(expression x, const window& how);
/// The adjoint of average_pool: distributes each element of dy evenly over the positions under its
/// window. The result has shape `dims`.
expression average_pool_gradient(expression dy, const window& how, shape dims);
/// (batch, C, H, W) -> (batch, C, 1, 1): the mean of each channel.
expression global_average_pool(expression x);

/// A convolution with its own variables: "NAME.weight" (filters, C / groups, height, width) and,
/// with `bias`, "NAME.bias" (filters). Weights start with initial_weights(after), biases with
/// zeros.
expression conv2d_layer(expression x, const std::string& name, std::int64_t filters,
                        const window& how, activation after = activation::none, bool bias = true);

} // namespace troupe
