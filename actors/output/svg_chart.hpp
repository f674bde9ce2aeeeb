#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The ticks of an axis: about `count` multiples of 1, 2 or 5 times a power of ten. The ticks
/// enclose all values: the first tick is at most `low`, and the last tick is at least `high`. Both
/// bounds must be finite.
std::vector<double> axis_ticks(double low, double high, std::size_t count = 5);

/// The text of a tick: "0.05", "12k", "3M".
std::string tick_text(double x);

/// A line of a chart. A point that is not finite interrupts the line.
struct chart_line {
  struct point {
    double x = 0;
    double y = 0;
  };

  std::string name;
  /// The CSS class of the line's SVG elements.
  std::string style;
  std::vector<point> points;
  /// If true, each point is drawn as well.
  bool marks = false;
};

struct chart_axes {
  /// A description for screen readers.
  std::string title;
  std::string x;
  /// If true, the value axis begins at 0.
  bool from_zero = true;
};

/// Draws lines over a common axis, as an SVG element that fills the width of its container. The
/// result is empty if no line has a finite point.
std::string line_chart(const chart_axes& axes, std::span<const chart_line> lines);

struct chart_bar {
  std::string label;
  double value = 0;
};

/// Draws vertical bars with their values above.
std::string bar_chart(const chart_axes& axes, std::span<const chart_bar> bars);

/// A bar that consists of several parts.
struct chart_stack {
  std::string label;
  std::vector<double> parts;
  /// Text to the right of the bar.
  std::string note;
};

/// The name and the style of one part of each bar.
struct chart_part {
  std::string name;
  std::string style;
};

/// Draws horizontal bars, one below the other, on one scale. The parts are in seconds.
std::string stacked_bars(const std::string& title, std::span<const chart_part> parts,
                         std::span<const chart_stack> stacks);

/// A stretch of a lane.
struct chart_stretch {
  double begin = 0;
  double end = 0;
  /// The CSS class of its SVG element.
  std::string_view style;
  /// Shown when the pointer is over it.
  std::string title;
};

/// A horizontal lane of stretches of time, which do not overlap.
struct chart_lane {
  std::string label;
  std::vector<chart_stretch> stretches;
};

/// Draws lanes, one below the other, over a common axis from 0 to `length`, in milliseconds.
std::string lanes(const std::string& title, std::span<const chart_lane> x, double length);

} // namespace troupe
