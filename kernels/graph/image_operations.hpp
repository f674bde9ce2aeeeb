#pragma once

#include "kernels/graph/graph.hpp"
#include "kernels/graph/operations.hpp"

#include <string>

namespace troupe {

// Images are (batch, channels, height, width), as in PyTorch. Each function throws input_error if
// shapes and window do not fit, naming them.

/// The same elements, row-major, in another shape; the batch stays in front. Costs nothing.
expression reshape(expression x, const shape& dims);
/// (batch, ...) as (batch, elements of a sample).
expression flatten(expression x);

/// Cross-correlation of x (batch, C, H, W) with w (O, C / groups, window.height, window.width),
/// zeros around x: (batch, O, window.rows(H), window.columns(W)). y[n,o,i,j] = sum_{c,u,v}
/// w[o,c,u,v] x[n, c', i stride_y + u - pad_y, j stride_x + v - pad_x], c' the c-th channel of o's
/// group.
expression conv2d(expression x, expression w, const window& how);
/// d sum(y * dy) / dx of the above, x of shape `dims`. Linear in dy and in w.
expression conv2d_input_gradient(expression dy, expression w, const window& how, const shape& dims);
/// d sum(y * dy) / dw of the above. Linear in x and in dy.
expression conv2d_weight_gradient(expression x, expression dy, const window& how);

/// x (batch, C, ...) + b (C), b[c] added to all elements of channel c.
expression add_channel_bias(expression x, expression b);
/// (batch, C, ...) -> (C): sum over samples and positions.
expression sum_channels(expression x);
/// (C) -> dims = (batch, C, ...), repeated.
expression broadcast_channels(expression x, const shape& dims);

/// The largest element under the window, per channel. The first of equal ones counts; NaN is
/// larger than all.
expression max_pool(expression x, const window& how);
/// The element of v at the position of x's largest element under the window. v and x have the same
/// shape.
expression max_pool_select(expression v, expression x, const window& how);
/// dy, added where x had its largest element under each window; else 0: the adjoint of the above.
expression max_pool_gradient(expression dy, expression x, const window& how);
/// The mean under the window, zeros of the padding included (PyTorch's count_include_pad).
expression average_pool(expression x, const window& how);
/// The adjoint of average_pool: each dy spread evenly under its window. Result of shape `dims`.
expression average_pool_gradient(expression dy, const window& how, const shape& dims);
/// (batch, C, H, W) -> (batch, C, 1, 1): the mean of each channel.
expression global_average_pool(expression x);

/// A convolution with variables of its own, "NAME.weight" (filters, C / groups, height, width),
/// He-uniform before activations that rectify, else Glorot-uniform, and "NAME.bias" (filters).
expression conv2d_layer(expression x, const std::string& name, std::int64_t filters,
                        const window& how, activation after = activation::none, bool bias = true);

} // namespace troupe
