#pragma once

#include "kernels/cpu/convolution.hpp"
#include "kernels/cuda/element.hpp"
#include "kernels/cuda/mixed.hpp"
#include "kernels/cuda/stream.hpp"

#include <cstddef>

namespace troupe::cuda {

using cpu::images;

// Convolutions and pooling; for formulas, see kernels/graph/image_operations.hpp. `in`: sizes of
// the images. `out`: sizes of the operation's result (for gradients: of dy).
//
// Convolutions are products of matrices. Tiles of the operands are gathered from the images when
// they are needed ("implicit GEMM"; Chetlur et al. 2014, cuDNN, section 3). Elements of 16 bits are
// multiplied by tensor cores. Sums are added up in float32. All operands have one type, except for
// the bias, the operand of `last`, and gradients of weights. Every image has fewer than 2^32
// elements, and so does a product of samples and positions.

/// y (count, filters, positions) = conv2d(x, w), plus a bias per filter, then `last`.
void conv2d(stream where, const images& in, const images& out, const window& how, mixed_input x,
            mixed_input w, const float* bias, ending last, mixed_output y);
/// dx = conv2d_input_gradient(dy, w), plus a bias per channel, then `last`.
void conv2d_input_gradient(stream where, const images& in, const images& out, const window& how,
                           mixed_input dy, mixed_input w, const float* bias, ending last,
                           mixed_output dx);
/// Number of parts into which the sum over samples and positions is divided.
std::size_t weight_gradient_parts(const images& in, const images& out, const window& how) noexcept;
/// dw = conv2d_weight_gradient(x, dy). `space`: weight_gradient_parts() times the elements of dw.
void conv2d_weight_gradient(stream where, const images& in, const images& out, const window& how,
                            mixed_input x, mixed_input dy, double* space, float* dw);

/// y = the element of v at the position of the largest x in the window.
void max_pool_select(stream where, const images& in, const images& out, const window& how,
                     mixed_input v, mixed_input x, mixed_output y);
/// dx = dy at the positions where x was the largest in a window, added up in order; 0 elsewhere. dx
/// has the type of dy and x, or float32.
void max_pool_gradient(stream where, const images& in, const images& out, const window& how,
                       mixed_input dy, mixed_input x, mixed_output dx);
void average_pool(stream where, const images& in, const images& out, const window& how,
                  mixed_input x, mixed_output y);
void average_pool_gradient(stream where, const images& in, const images& out, const window& how,
                           mixed_input dy, mixed_output dx);

} // namespace troupe::cuda
