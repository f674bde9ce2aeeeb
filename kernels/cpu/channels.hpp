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

/// out (2, channels): sums of x and of its squares, in double. In double, their rounding errors are
/// smaller than those of a float x, even if the mean is much larger than the deviation.
template <class T>
void channel_sums(const images& size, const T* x, double* out);

/// The moments of n numbers per channel from their sums, for example over the images of several
/// workers. 0 if n is 0.
template <class T>
void moments_of_sums(std::size_t channels, const double* sums, std::size_t n, T* out);

/// out may be x.
template <class T>
void normalize_channels(const images& size, const T* x, const T* moments, double epsilon, T* out);

/// out (2, channels): sums of dy and of dy (x - mean), in double.
template <class T>
void channel_products(const images& size, const T* dy, const T* x, const T* moments, double* out);

/// out may be dy or x. `totals`: channel_products over all numbers that the moments cover, n per
/// channel; null if the moments cover only x.
template <class T>
void normalize_channels_gradient(const images& size, const T* dy, const T* x, const T* moments,
                                 double epsilon, const double* totals, std::size_t n, T* out);

} // namespace troupe::cpu
