#pragma once

#include "kernels/cpu/convolution.hpp"
#include "kernels/cuda/element.hpp"
#include "kernels/cuda/stream.hpp"

#include <cstddef>

namespace troupe::cuda {

using cpu::images;

// Convolutions and pooling; formulas: kernels/graph/image_operations.hpp. in: sizes of the images,
// out: sizes of the result of the operation (of its gradient, where dy is an operand).
//
// Convolutions are products of matrices whose operands are gathered from the images as tiles of
// them are needed ("implicit GEMM"; Chetlur et al. 2014, cuDNN, section 3). Every image has fewer
// than 2^32 elements, and so has a product of samples and positions.

/// y (count, filters, positions) = conv2d(x, w), plus a bias per filter, then `last`.
void conv2d(stream where, const images& in, const images& out, const window& how, const float* x,
            const float* w, const float* bias, ending last, float* y);
/// dx = conv2d_input_gradient(dy, w), plus a bias per channel, then `last`.
void conv2d_input_gradient(stream where, const images& in, const images& out, const window& how,
                           const float* dy, const float* w, const float* bias, ending last,
                           float* dx);
/// The parts that the sum over samples and positions is divided into.
std::size_t weight_gradient_parts(const images& in, const images& out, const window& how) noexcept;
/// dw = conv2d_weight_gradient(x, dy). `space`: weight_gradient_parts() times the elements of dw.
void conv2d_weight_gradient(stream where, const images& in, const images& out, const window& how,
                            const float* x, const float* dy, double* space, float* dw);

/// y = the element of v at the place of x's largest under the window.
void max_pool_select(stream where, const images& in, const images& out, const window& how,
                     const float* v, const float* x, float* y);
/// dx = dy where x was the largest under a window, added up in order; else 0.
void max_pool_gradient(stream where, const images& in, const images& out, const window& how,
                       const float* dy, const float* x, float* dx);
void average_pool(stream where, const images& in, const images& out, const window& how,
                  const float* x, float* y);
void average_pool_gradient(stream where, const images& in, const images& out, const window& how,
                           const float* dy, float* dx);

} // namespace troupe::cuda
