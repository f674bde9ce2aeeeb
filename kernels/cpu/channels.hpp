#pragma once

#include "kernels/cpu/convolution.hpp"

namespace troupe::cpu {

// Batch normalization; formulas: kernels/graph/channel_operations.hpp. x (count, channels, pixels).

/// out = x times g per channel. out may be x.
template <class T>
void multiply_channels(const images& size, const T* x, const T* g, T* out);

/// out (2, channels): means and variances, added up in double. Both are 0 if there are no images.
template <class T>
void channel_moments(const images& size, const T* x, T* out);

/// out may be x.
template <class T>
void normalize_channels(const images& size, const T* x, const T* moments, double epsilon, T* out);

/// out may be dy or x.
template <class T>
void normalize_channels_gradient(const images& size, const T* dy, const T* x, const T* moments,
                                 double epsilon, T* out);

} // namespace troupe::cpu
