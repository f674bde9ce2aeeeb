#pragma once

#include "kernels/cpu/convolution.hpp"
#include "kernels/cuda/element.hpp"
#include "kernels/cuda/mixed.hpp"
#include "kernels/cuda/stream.hpp"

#include <cstddef>

namespace troupe::cuda {

using cpu::images;

// Convolutions and pooling. Formulas: kernels/graph/image_operations.hpp. `in` contains the sizes
// of the images. `out` contains the sizes of the result of the operation. Gradients get the same
// `in` and `out`: dx has the sizes `in`, and dy has the sizes `out`.
//
// Convolutions are computed as products of matrices. Tiles of the operands are gathered from the
// images when they are needed ("implicit GEMM"; Chetlur et al. 2014, cuDNN, section 3). Tensor
// cores multiply elements of 16 bits. Sums are added up in float32. The operands and the result
// have the same type. The bias and the gradient of weights are always float32. If the result has 16
// bits, the operand of `last` may have another type.
//
// Kernels for images count in 32 bits. check_sizes() (size_limits.hpp) refuses plans whose images
// or batches are too large for this.

/// y (count, filters, positions) = conv2d(x, w), plus a bias per filter, if `bias` is not null.
/// Then the function `last`, if there is one, is applied.
void conv2d(stream where, const images& in, const images& out, const window& how, mixed_input x,
            mixed_input w, const float* bias, ending last, mixed_output y);
/// dx = conv2d_input_gradient(dy, w), plus a bias per channel, if `bias` is not null. Then the
/// function `last`, if there is one, is applied.
void conv2d_input_gradient(stream where, const images& in, const images& out, const window& how,
                           mixed_input dy, mixed_input w, const float* bias, ending last,
                           mixed_output dx);
/// The number of parts into which conv2d_weight_gradient divides the sum over samples and
/// positions.
std::size_t weight_gradient_parts(const images& in, const images& out, const window& how) noexcept;
/// dw = conv2d_weight_gradient(x, dy). `space` has weight_gradient_parts() times as many elements
/// as dw.
void conv2d_weight_gradient(stream where, const images& in, const images& out, const window& how,
                            mixed_input x, mixed_input dy, float* space, float* dw);

/// For each window: y is the element of v at the position where x is largest in the window.
void max_pool_select(stream where, const images& in, const images& out, const window& how,
                     mixed_input v, mixed_input x, mixed_output y);
/// dx at a position is the sum of dy over the windows in which x is largest at this position, added
/// up in the order of windows. If there is no such window, dx is 0. dx has the type of dy and x, or
/// float32.
void max_pool_gradient(stream where, const images& in, const images& out, const window& how,
                       mixed_input dy, mixed_input x, mixed_output dx);
void average_pool(stream where, const images& in, const images& out, const window& how,
                  mixed_input x, mixed_output y);
void average_pool_gradient(stream where, const images& in, const images& out, const window& how,
                           mixed_input dy, mixed_output dx);

} // namespace troupe::cuda
