#pragma once

#include "kernels/cuda/mixed.hpp"
#include "kernels/cuda/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::cuda {

// Sums in double precision, without atomics. The order of additions depends only on the sizes, so
// every run gives the same bits.

/// The number of elements of work space for sums over all elements. Up to two sums are computed at
/// once. Each of them needs one element per block.
inline constexpr std::size_t sum_space = 2048;

/// The destination of a scalar result, in double or rounded to float32. A pointer that is not
/// needed is null.
struct scalar_result {
  double* exact = nullptr;
  float* rounded = nullptr;
};

/// factor * sum of x (n).
void sum(stream where, std::size_t n, mixed_input x, double factor, double* space,
         scalar_result out);
/// factor * sum of x (n), where x is in double.
void sum(stream where, std::size_t n, const double* x, double factor, double* space,
         scalar_result out);
/// One of the sums that sum_rows() computes.
struct sum_of_rows {
  double factor = 1;
  scalar_result out;
};
/// The largest number of sums that one launch of sum_rows() computes.
inline constexpr std::size_t most_row_sums = 4;
/// For each row r of x (all.size(), n): all[r].factor * sum of row r. `space` has sum_space
/// elements.
void sum_rows(stream where, std::size_t n, const double* x, std::span<const sum_of_rows> all,
              double* space);
/// factor * sum of (a - b)^2, (n) each.
void squared_error(stream where, std::size_t n, const float* a, const float* b, double factor,
                   double* space, scalar_result out);
/// sum of x^2 (n).
void sum_of_squares(stream where, std::size_t n, const float* x, double* space, scalar_result out);
/// The number of correct samples. A sample is correct if its label is 1 and its logit is above 0,
/// or if its label is 0 and its logit is not above 0.
void binary_correct(stream where, std::size_t n, const float* logits, const std::int32_t* labels,
                    double* space, scalar_result out);

/// The number of parts into which sum_leading divides `rows`.
std::size_t row_parts(std::size_t rows, std::size_t columns) noexcept;
/// out (columns) = sum over the rows of x (rows, columns). `space`: row_parts() * columns elements.
void sum_leading(stream where, std::size_t rows, std::size_t columns, mixed_input x, double* space,
                 float* out);
/// out (n) = sum of the parts (parts, n), in their order.
void add_parts(stream where, std::size_t parts, std::size_t n, const double* x, float* out);
/// out (rows) = sum of each row of x (rows, columns).
void sum_last(stream where, std::size_t rows, std::size_t columns, mixed_input x, float* out);

/// Images (count, channels, pixels).
struct channel_sizes {
  std::size_t count = 0;
  std::size_t channels = 0;
  std::size_t pixels = 0;
};

/// The number of parts into which sums over images and pixels divide a channel.
std::size_t channel_parts(const channel_sizes& size) noexcept;
/// out (channels) = sum of x over images and pixels. `space`: channel_parts() * channels elements.
void sum_channels(stream where, const channel_sizes& size, mixed_input x, double* space,
                  float* out);

} // namespace troupe::cuda
