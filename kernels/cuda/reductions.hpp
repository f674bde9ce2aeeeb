#pragma once

#include "kernels/cuda/stream.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe::cuda {

// Sums, added up in double, in an order that depends on the sizes alone: the same bits in every
// run. No atomics.

/// Elements of work space that sums of everything need: one for each block, of each of two sums.
inline constexpr std::size_t sum_space = 512;

/// A scalar goes to one or both.
struct scalar_result {
  double* exact = nullptr;
  float* rounded = nullptr;
};

/// factor * sum of x (n).
void sum(stream where, std::size_t n, const float* x, double factor, double* space,
         scalar_result out);
/// factor * sum of x (n), in double.
void sum(stream where, std::size_t n, const double* x, double factor, double* space,
         scalar_result out);
/// factor * sum of (a - b)^2, (n) each.
void squared_error(stream where, std::size_t n, const float* a, const float* b, double factor,
                   double* space, scalar_result out);
/// The number of samples whose logit is above 0 exactly if their label is 1.
void binary_correct(stream where, std::size_t n, const float* logits, const std::int32_t* labels,
                    double* space, scalar_result out);

/// The parts that sum_leading divides `rows` into.
std::size_t row_parts(std::size_t rows, std::size_t columns) noexcept;
/// out (columns) = sum over the rows of x (rows, columns). `space`: row_parts() * columns elements.
void sum_leading(stream where, std::size_t rows, std::size_t columns, const float* x, double* space,
                 float* out);
/// out (n) = sum of the parts (parts, n), in their order.
void add_parts(stream where, std::size_t parts, std::size_t n, const double* x, float* out);
/// out (rows) = sum of each row of x (rows, columns).
void sum_last(stream where, std::size_t rows, std::size_t columns, const float* x, float* out);
/// out (channels) = sum of x (count, channels, pixels) over images and pixels.
void sum_channels(stream where, std::size_t count, std::size_t channels, std::size_t pixels,
                  const float* x, float* out);

} // namespace troupe::cuda
