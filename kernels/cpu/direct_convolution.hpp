#pragma once

#include "kernels/cpu/convolution.hpp"

namespace troupe::cpu {

// Convolutions of stride 1 without a matrix of patches. The image is padded with zeros. Row (c, u,
// v) of the matrix of patches would contain the elements of channel c under element (u, v) of the
// window, for all positions of the window. With stride 1, this row is the padded image, read from
// another offset. So the matrix product reads its operand directly from the padded image. Positions
// at which the window crosses the right edge give additional results at the end of each line. These
// are dropped afterwards. Internal to convolution.cpp. The functions take the same arguments as
// those of convolution.hpp.

/// True if these functions can compute the convolution.
bool is_direct(const images& in, const window& how);

template <class T>
std::size_t direct_scratch_elements(const images& in, const images& out, const window& how);

/// Computes the images `part`.
template <class T>
void direct_conv2d(const images& in, const images& out, const window& how, const T* x, const T* w,
                   const finish<T>& last_step, T* y, T* scratch, range part);

template <class T>
void direct_input_gradient(const images& in, const images& out, const window& how, const T* dy,
                           const T* w, const finish<T>& last_step, T* dx, T* scratch, range part);

/// Computes the elements `part` of each filter's gradient. A filter's elements are ordered by
/// channel, line and column of the kernel.
template <class T>
void direct_weight_gradient(const images& in, const images& out, const window& how, const T* x,
                            const T* dy, T* dw, T* scratch, range part);

} // namespace troupe::cpu
