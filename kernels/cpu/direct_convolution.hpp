#pragma once

#include "kernels/cpu/convolution.hpp"

namespace troupe::cpu {

// Convolutions of stride 1 without a matrix of patches. If the image is padded with zeros, the
// elements under (u, v) of the window, for all positions in the order of the image, are simply the
// shifted image. The matrix product reads its operand from there. Positions that cross the right
// edge give extra results between the lines, which are dropped afterwards. Internal to
// convolution.cpp; the functions take the same arguments.

bool is_direct(const images& in, const window& how);

template <class T>
std::size_t direct_scratch_elements(const images& in, const images& out, const window& how);

/// For the images `part`.
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
