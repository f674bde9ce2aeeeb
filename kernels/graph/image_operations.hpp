#pragma once

#include "kernels/graph/graph.hpp"
#include "kernels/graph/operations.hpp"

#include <string>

namespace troupe {

// Images have the shape (batch, channels, height, width), as in PyTorch. If shapes and window do
// not fit, each function throws input_error with the names and shapes of the tensors.

/// Gives x another shape. The elements stay the same, in row-major order, and are not copied. The
/// batch stays dimension 0. x may be int32; then only embedding() and to_float() can read the
/// result.
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
/// The gradient of conv2d with respect to x: d sum(y * dy) / dx, where y is the result of conv2d. x
/// has shape `dims`. The gradient is linear in dy and in w.
expression conv2d_input_gradient(expression dy, expression w, const window& how, shape dims);
/// Transposed convolution (Zeiler et al., 2010; PyTorch's ConvTranspose2d) of x (batch, C, H, W)
/// with w (C, O / groups, window.height, window.width). Result: (batch, O, H', W'), where H' = (H -
/// 1) stride_y - 2 pad_y + window.extent_y() + extra_rows, and W' is computed in the same way. The
/// result is conv2d_input_gradient(x, w, how, (batch, O, H', W')). extra_rows and extra_columns are
/// at least 0 and less than the strides.
expression conv_transpose2d(expression x, expression w, const window& how,
                            std::int64_t extra_rows = 0, std::int64_t extra_columns = 0);
/// The gradient of conv2d with respect to w: d sum(y * dy) / dw, where y is the result of conv2d.
/// The gradient is linear in x and in dy.
expression conv2d_weight_gradient(expression x, expression dy, const window& how);

/// x (batch, C, ...) + b (C): b[c] is added to all elements of channel c.
expression add_channel_bias(expression x, expression b);
/// (batch, C, ...) -> (C): sum over samples and positions.
expression sum_channels(expression x);
/// (C) -> dims = (batch, C, ...): repeats each element over its channel.
expression broadcast_channels(expression x, shape dims);

/// Max pooling: the largest element under the window, for each channel. This element gets the
/// gradient. If several elements are the largest, the first of them gets it. A NaN is treated as
/// larger than any number.
expression max_pool(expression x, const window& how);
/// Finds the largest element of x under the window, and returns the element of v at the same
/// position. v and x have the same shape.
expression max_pool_select(expression v, expression x, const window& how);
/// The adjoint of max_pool_select. For each window, adds the window's element of dy to the result,
/// at the position of the largest element of x under the window. The result is 0 elsewhere.
expression max_pool_gradient(expression dy, expression x, const window& how);
/// Average pooling: the mean of the elements under the window. The mean includes the zeros of the
/// padding (PyTorch's count_include_pad). With window::ceil_mode, it does not include the part of a
/// window that extends beyond the padding.
expression average_pool(expression x, const window& how);
/// The adjoint of average_pool: distributes each element of dy evenly over the positions under its
/// window. The result has shape `dims`.
expression average_pool_gradient(expression dy, const window& how, shape dims);
/// (batch, C, H, W) -> (batch, C, 1, 1): the mean of each channel.
expression global_average_pool(expression x);

/// A convolution with its own variables: "NAME.weight" (filters, C / groups, height, width) and, if
/// `bias` is true, "NAME.bias" (filters). Weights start with initial_weights(after), biases with
/// zeros.
expression conv2d_layer(expression x, const std::string& name, std::int64_t filters,
                        const window& how, activation after = activation::none, bool bias = true);

} // namespace troupe
