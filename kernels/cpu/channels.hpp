#pragma once

#include "kernels/cpu/convolution.hpp"

namespace troupe::cpu {

// Batch normalization. Formulas: kernels/graph/channel_operations.hpp. x (count, channels, pixels).

/// out = x times g[c] for each channel c. out may be x.
template <class T>
void multiply_channels(const images& size, const T* x, const T* g, T* out);

/// out (2, channels): the mean and the variance of each channel, computed in double. Both are 0 if
/// there are no images.
template <class T>
void channel_moments(const images& size, const T* x, T* out);

/// out (2, channels): the sums of x and of x^2, in double. The variance can be computed from these
/// sums. Its error is smaller than the rounding of x to float, even if the mean is much larger than
/// the standard deviation.
template <class T>
void channel_sums(const images& size, const T* x, double* out);

/// out (2, channels): the mean and the variance of n numbers per channel, from the sums of
/// channel_sums(). The sums may cover the numbers of several workers. Mean and variance are 0 if n
/// is 0.
template <class T>
void moments_of_sums(std::size_t channels, const double* sums, std::size_t n, T* out);

/// out may be x.
template <class T>
void normalize_channels(const images& size, const T* x, const T* moments, double epsilon, T* out);

/// out (2, channels): the sums of dy and of dy (x - mean), in double.
template <class T>
void channel_products(const images& size, const T* dy, const T* x, const T* moments, double* out);

/// out may be dy or x. If `totals` is null, the moments were computed from x alone, and n is
/// ignored. Otherwise, they were computed from the samples of several workers. Then `totals`
/// contains the sums of channel_products() over all of these samples, and n is the number of values
/// per channel.
template <class T>
void normalize_channels_gradient(const images& size, const T* dy, const T* x, const T* moments,
                                 double epsilon, const double* totals, std::size_t n, T* out);

} // namespace troupe::cpu
