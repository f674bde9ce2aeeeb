#pragma once

#include "kernels/graph/graph.hpp"
#include "kernels/graph/operations.hpp"

#include <string>

namespace troupe {

// Images are (batch, channels, height, width), as in PyTorch. Each function throws input_error if
// shapes and window do not fit, and names them.

/// The same elements in row-major order, in another shape. The batch stays in front. Costs nothing.
/// x may be int32; then only embedding() and to_float() can read the result.
expression reshape(expression x, shape dims);
/// (batch, ...) as (batch, elements of a sample).
expression flatten(expression x);

/// Cross-correlation of x (batch, C, H, W) with w (O, C / groups, window.height, window.width),
/// zeros around x: (batch, O, window.rows(H), window.columns(W)). y[n,o,i,j] = sum_{c,u,v}
/// w[o,c,u,v] x[n, c', i stride_y + u dilation_y - pad_y, j stride_x + v dilation_x - pad_x], c'
/// the c-th channel of o's group.
expression conv2d(expression x, expression w, const window& how);
/// d sum(y * dy) / dx of conv2d. x has shape `dims`. Linear in dy and in w.
expression conv2d_input_gradient(expression dy, expression w, const window& how, shape dims);
/// Transposed convolution (Zeiler et al., 2010; PyTorch's ConvTranspose2d): x (batch, C, H, W) and
/// w (C, O / groups, window.height, window.width) to (batch, O, H', W'). It is
/// conv2d_input_gradient(x, w) for images of H' = (H - 1) stride_y - 2 pad_y + window.extent_y() +
/// extra_rows, W' likewise. The extra rows and columns are at least 0 and less than the strides.
expression conv_transpose2d(expression x, expression w, const window& how,
                            std::int64_t extra_rows = 0, std::int64_t extra_columns = 0);
/// d sum(y * dy) / dw of conv2d. Linear in x and in dy.
expression conv2d_weight_gradient(expression x, expression dy, const window& how);

/// x (batch, C, ...) + b (C): b[c] is added to all elements of channel c.
expression add_channel_bias(expression x, expression b);
/// (batch, C, ...) -> (C): sum over samples and positions.
expression sum_channels(expression x);
/// (C) -> dims = (batch, C, ...), repeated.
expression broadcast_channels(expression x, shape dims);

/// The largest element under the window, per channel. If several are equal, the first one counts.
/// NaN is larger than any number.
expression max_pool(expression x, const window& how);
/// The element of v at the position of x's largest element under the window. v and x have the same
/// shape.
expression max_pool_select(expression v, expression x, const window& how);
/// The adjoint of max_pool_select: adds dy at the position of x's largest element under each
/// window; 0 elsewhere.
expression max_pool_gradient(expression dy, expression x, const window& how);
/// The mean under the window, including the zeros of the padding (PyTorch's count_include_pad).
/// With window::ceil_mode, elements beyond the padding do not count.
expression average_pool(expression x, const window& how);
/// The adjoint of average_pool: spreads each dy evenly under its window. The result has shape
/// `dims`.
expression average_pool_gradient(expression dy, const window& how, shape dims);
/// (batch, C, H, W) -> (batch, C, 1, 1): the mean of each channel.
expression global_average_pool(expression x);

/// A convolution with its own variables: "NAME.weight" (filters, C / groups, height, width),
/// He-uniform before rectifying activations, otherwise Glorot-uniform; and "NAME.bias" (filters).
expression conv2d_layer(expression x, const std::string& name, std::int64_t filters,
                        const window& how, activation after = activation::none, bool bias = true);

} // namespace troupe
