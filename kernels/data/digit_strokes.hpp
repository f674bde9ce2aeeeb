#pragma once

#include <cstddef>
#include <span>

namespace troupe {

/// A point of a drawing: x to the right, y down, about -0.6 .. 0.6 by -1 .. 1.
struct stroke_point {
  float x;
  float y;
};

/// One movement of the pen. Curved: a spline through the points; else straight lines from one to
/// the next.
struct stroke {
  bool curved;
  std::span<const stroke_point> points;
};

/// Ways to draw a digit (0 .. 9); each a list of strokes. The longest has `max_stroke_points`
/// points in a stroke.
std::span<const std::span<const stroke>> digit_shapes(std::size_t digit) noexcept;

inline constexpr std::size_t max_stroke_points = 9;

} // namespace troupe
