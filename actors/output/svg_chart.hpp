#pragma once

#include <span>
#include <string>
#include <vector>

namespace troupe {

/// The ticks of an axis: multiples of 1, 2 or 5 times a power of ten, about `count` of them, the
/// first not above `low`, the last not below `high`. Both must be finite.
std::vector<double> axis_ticks(double low, double high, std::size_t count = 5);

/// A number at a tick: "0.05", "12k", "3M".
std::string tick_text(double x);

/// A line of a chart. Points that are not finite interrupt it.
struct chart_line {
  struct point {
    double x = 0;
    double y = 0;
  };

  std::string name;
  /// The class of its elements, for the style sheet.
  std::string style;
  std::vector<point> points;
  /// Also draws each point.
  bool marks = false;
};

struct chart_axes {
  /// A description for screen readers.
  std::string title;
  std::string x;
  /// The axis of values begins at 0.
  bool from_zero = true;
};

/// Lines over a common axis, as an SVG element that fills the width of its place. Empty if no line
/// has a point.
std::string line_chart(const chart_axes& axes, std::span<const chart_line> lines);

struct chart_bar {
  std::string label;
  double value = 0;
};

/// Upright bars, with their values above.
std::string bar_chart(const chart_axes& axes, std::span<const chart_bar> bars);

/// A bar of several parts, one after the other.
struct chart_stack {
  std::string label;
  std::vector<double> parts;
  /// Stands behind the bar.
  std::string note;
};

/// A part that all stacks have.
struct chart_part {
  std::string name;
  std::string style;
};

/// Horizontal bars on one scale, one below the other. The unit of their parts is seconds.
std::string stacked_bars(const std::string& title, std::span<const chart_part> parts,
                         std::span<const chart_stack> stacks);

} // namespace troupe
