#pragma once

#include "kernels/cuda/mixed.hpp"
#include "kernels/cuda/stream.hpp"

#include <cstddef>

namespace troupe::cuda {

// Layer and batch normalization; formulas: kernels/graph/sequence_operations.hpp and
// kernels/graph/channel_operations.hpp. Sums are added up in double, in a fixed order.

/// out (rows, columns) = (x - mean) / sqrt(variance + epsilon) of each row. `out` may be x.
void normalize_rows(stream where, std::size_t rows, std::size_t columns, mixed_input x,
                    double epsilon, mixed_output out);
/// Its gradient, (rows, columns). `out` may be dy or x.
void normalize_rows_gradient(stream where, std::size_t rows, std::size_t columns, mixed_input dy,
                             mixed_input x, double epsilon, mixed_output out);

/// Images (count, channels, pixels).
struct channel_sizes {
  std::size_t count = 0;
  std::size_t channels = 0;
  std::size_t pixels = 0;
};

/// out (2, channels): means and variances; 0 if there are no images.
void channel_moments(stream where, const channel_sizes& size, mixed_input x, float* out);
/// `out` may be x.
void normalize_channels(stream where, const channel_sizes& size, mixed_input x,
                        const float* moments, double epsilon, mixed_output out);
/// Sums over the images of all workers, in device memory, and the number of elements of a channel
/// in these images. Without sums, this worker's images are all.
struct channel_totals {
  const double* sums = nullptr; // (2, channels)
  std::size_t each = 0;
};
/// `out` may be dy or x. totals: of channel_products.
void normalize_channels_gradient(stream where, const channel_sizes& size, mixed_input dy,
                                 mixed_input x, const float* moments, double epsilon,
                                 const channel_totals& totals, mixed_output out);

// Batch normalization over the images of several workers: each adds up its part.

/// out (2, channels): sums of x, and of its squares.
void channel_sums(stream where, const channel_sizes& size, mixed_input x, double* out);
/// out (2, channels): the moments that follow from the totals of channel_sums.
void moments_of_sums(stream where, std::size_t channels, const channel_totals& totals, float* out);
/// out (2, channels): sums of dy, and of dy (x - mean).
void channel_products(stream where, const channel_sizes& size, mixed_input dy, mixed_input x,
                      const float* moments, double* out);

} // namespace troupe::cuda
