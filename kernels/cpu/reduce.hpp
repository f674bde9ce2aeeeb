#pragma once

#include <span>

namespace troupe {

// Sums of flat ranges, for rings and shards. All spans must have the same size; otherwise, the
// functions throw std::invalid_argument. Each element's result depends only on its operands, so
// cutting a range anywhere does not change the bits. Sums of two ranges count denormal numbers as
// zero, like updates (flush_denormals): an update that adds up its gradient itself has the same
// bits. A range may be empty.

/// out = a + b. `out` may be a or b.
void add(std::span<const float> a, std::span<const float> b, std::span<float> out);
void add(std::span<const double> a, std::span<const double> b, std::span<double> out);
/// y += x.
void accumulate(std::span<float> y, std::span<const float> x);
/// y *= factor.
void multiply(std::span<float> y, float factor);

/// Sum of squares, added up in double: in 16 lanes, which are then added up in order. Cutting a
/// range and adding the parts may change the last bits. In double, squares of floats neither
/// overflow nor underflow. T: float, double.
template <class T>
double sum_of_squares(std::span<const T> x) noexcept;

extern template double sum_of_squares<float>(std::span<const float>) noexcept;
extern template double sum_of_squares<double>(std::span<const double>) noexcept;

/// True if all elements are finite (neither NaN nor infinite).
bool all_finite(std::span<const float> x) noexcept;

} // namespace troupe
