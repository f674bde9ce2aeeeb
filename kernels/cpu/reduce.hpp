#pragma once

#include <span>

namespace troupe {

// Sums of flat ranges, for rings and shards. All spans must have the same size; otherwise, the
// functions throw std::invalid_argument. A range may be empty.
//
// The result of an element depends only on its operands. So the bits do not depend on how a range
// is divided. add() and accumulate() treat denormal numbers as zero (flush_denormals), and so do
// updates. Therefore, an update with two gradients (update_arguments::addend) has the same bits as
// add() followed by an update.

/// out = a + b. `out` may be a or b.
void add(std::span<const float> a, std::span<const float> b, std::span<float> out);
void add(std::span<const double> a, std::span<const double> b, std::span<double> out);
/// y += x.
void accumulate(std::span<float> y, std::span<const float> x);
/// y *= factor.
void multiply(std::span<float> y, float factor);

/// The sum of squares, in double. It is computed as 16 independent sums, which are then added in
/// order. If a range is divided and the sums of its parts are added, the last bits may differ. In
/// double, squares of floats neither overflow nor underflow. T: float, double.
template <class T>
double sum_of_squares(std::span<const T> x) noexcept;

extern template double sum_of_squares<float>(std::span<const float>) noexcept;
extern template double sum_of_squares<double>(std::span<const double>) noexcept;

/// True if all elements are finite (neither NaN nor infinite).
bool all_finite(std::span<const float> x) noexcept;

} // namespace troupe
