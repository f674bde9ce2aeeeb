#pragma once

#include "kernels/cuda/mixed.hpp"
#include "kernels/cuda/reductions.hpp"
#include "kernels/cuda/stream.hpp"

#include <cstddef>

namespace troupe::cuda {

// Layer and batch normalization; formulas: kernels/graph/sequence_operations.hpp and
// kernels/graph/channel_operations.hpp. Sums are added up in double, in a fixed order.

/// out (rows, columns) = (x - mean) / sqrt(variance + epsilon) of each row. `out` may be x.
void normalize_rows(stream where, std::size_t rows, std::size_t columns, mixed_input x,
                    double epsilon, mixed_output out);
/// The gradient of normalize_rows. All tensors are (rows, columns). `out` may be dy or x.
void normalize_rows_gradient(stream where, std::size_t rows, std::size_t columns, mixed_input dy,
                             mixed_input x, double epsilon, mixed_output out);

/// The number of elements of `space`, the work space of the functions below.
std::size_t channel_space(const channel_sizes& size) noexcept;
/// out (2, channels): the mean and the variance of each channel. Both are 0 if there are no images.
/// The variance is computed from the sum and the sum of squares, like in moments_of_sums. If the
/// deviation is 1/1000 of the mean, the variance has a relative error of about 1e-9.
void channel_moments(stream where, const channel_sizes& size, mixed_input x, double* space,
                     float* out);
/// out = (x - mean) / sqrt(variance + epsilon) of each channel. `out` may be x.
void normalize_channels(stream where, const channel_sizes& size, mixed_input x,
                        const float* moments, double epsilon, mixed_output out);
/// Sums over the images of all workers, in device memory, and the number of elements that a channel
/// has in these images. If `sums` is null, only the images of this worker are used.
struct channel_totals {
  const double* sums = nullptr; // (2, channels)
  std::size_t each = 0;
};
/// The gradient of normalize_channels. `totals` are the sums of channel_products over all workers.
/// If totals.sums is null, the sums over this worker's images are computed first, in `space`. `out`
/// may be dy or x.
void normalize_channels_gradient(stream where, const channel_sizes& size, mixed_input dy,
                                 mixed_input x, const float* moments, double epsilon,
                                 const channel_totals& totals, double* space, mixed_output out);

// Batch normalization over the images of several workers. Each worker computes sums over its own
// images. The caller adds up these sums over the workers, which gives the totals.

/// out (2, channels): for each channel, the sum of x and the sum of its squares.
void channel_sums(stream where, const channel_sizes& size, mixed_input x, double* space,
                  double* out);
/// out (2, channels): the mean and the variance of each channel, from the totals of channel_sums.
void moments_of_sums(stream where, std::size_t channels, const channel_totals& totals, float* out);
/// out (2, channels): for each channel, the sum of dy and the sum of dy (x - mean).
void channel_products(stream where, const channel_sizes& size, mixed_input dy, mixed_input x,
                      const float* moments, double* space, double* out);

} // namespace troupe::cuda
