#pragma once

#include <cstddef>
#include <span>

namespace troupe {

/// A point of a drawing. x grows to the right, from about -0.6 to 0.6. y grows downwards, from
/// about -1 to 1.
struct stroke_point {
  float x;
  float y;
};

/// One movement of the pen. If `curved` is true, it is a spline through the points. Otherwise,
/// straight lines connect the points.
struct stroke {
  bool curved;
  std::span<const stroke_point> points;
};

/// All ways to draw a digit (0 .. 9), each as a list of strokes. A stroke has at most
/// `max_stroke_points` points.
std::span<const std::span<const stroke>> digit_shapes(std::size_t digit) noexcept;

inline constexpr std::size_t max_stroke_points = 9;

} // namespace troupe
