#pragma once

#include "kernels/cuda/mixed.hpp"
#include "kernels/cuda/stream.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe::cuda {

// Sums in double precision. The order of additions depends only on the sizes, so every run gives
// the same bits. No atomics.

/// Number of elements of work space for a sum of all elements: one per block, for each of two sums.
inline constexpr std::size_t sum_space = 512;

/// The destination of a scalar: one of these, or both.
struct scalar_result {
  double* exact = nullptr;
  float* rounded = nullptr;
};

/// factor * sum of x (n).
void sum(stream where, std::size_t n, mixed_input x, double factor, double* space,
         scalar_result out);
/// factor * sum of x (n), in double.
void sum(stream where, std::size_t n, const double* x, double factor, double* space,
         scalar_result out);
/// factor * sum of (a - b)^2, (n) each.
void squared_error(stream where, std::size_t n, const float* a, const float* b, double factor,
                   double* space, scalar_result out);
/// sum of x^2 (n).
void sum_of_squares(stream where, std::size_t n, const float* x, double* space, scalar_result out);
/// The number of correct samples: the logit is above 0 if the label is 1, and not above 0 if it is
/// 0.
void binary_correct(stream where, std::size_t n, const float* logits, const std::int32_t* labels,
                    double* space, scalar_result out);

/// Number of parts into which sum_leading divides `rows`.
std::size_t row_parts(std::size_t rows, std::size_t columns) noexcept;
/// out (columns) = sum over the rows of x (rows, columns). `space`: row_parts() * columns elements.
void sum_leading(stream where, std::size_t rows, std::size_t columns, mixed_input x, double* space,
                 float* out);
/// out (n) = sum of the parts (parts, n), in their order.
void add_parts(stream where, std::size_t parts, std::size_t n, const double* x, float* out);
/// out (rows) = sum of each row of x (rows, columns).
void sum_last(stream where, std::size_t rows, std::size_t columns, mixed_input x, float* out);
/// out (channels) = sum of x (count, channels, pixels) over images and pixels.
void sum_channels(stream where, std::size_t count, std::size_t channels, std::size_t pixels,
                  mixed_input x, float* out);

} // namespace troupe::cuda
