#pragma once

#include "kernels/cpu/convolution.hpp"

namespace troupe::cpu {

// Convolutions of stride 1 without a matrix of patches. The image is padded with zeros. Row (c, u,
// v) of the matrix of patches would contain the elements of channel c under element (u, v) of the
// window, for all positions of the window. With stride 1, this row is a part of the padded image.
// Only the offset of the part is different for each row. So the matrix product reads its operand
// directly from the padded image.
//
// The product also computes results for positions at which the window crosses the right edge of the
// image. These additional results are at the end of each line, and are dropped afterwards.
//
// Internal to convolution.cpp. The functions take the same arguments as the functions of
// convolution.hpp.

/// True if the functions of this file can compute the convolution.
bool is_direct(const images& in, const window& how);

template <class T>
std::size_t direct_scratch_elements(const images& in, const images& out, const window& how);

/// Computes the images `part` of the result.
template <class T>
void direct_conv2d(const images& in, const images& out, const window& how, const T* x, const T* w,
                   const finish<T>& last_step, T* y, T* scratch, range part);

template <class T>
void direct_input_gradient(const images& in, const images& out, const window& how, const T* dy,
                           const T* w, const finish<T>& last_step, T* dx, T* scratch, range part);

/// Computes the elements `part` of the gradient of each filter. The elements of a filter are
/// ordered by channel, line and column of the kernel.
template <class T>
void direct_weight_gradient(const images& in, const images& out, const window& how, const T* x,
                            const T* dy, T* dw, T* scratch, range part);

} // namespace troupe::cpu
