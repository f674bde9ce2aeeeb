#include "actors/output/svg_chart.hpp"

#include "actors/output/print_to.hpp"
#include "actors/output/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace troupe {

namespace {

// The frame of a chart, in units of its view box.
constexpr double width = 480;
constexpr double height = 220;
constexpr double left = 50;
constexpr double right = 14;
constexpr double top = 16;
constexpr double bottom = 44;

// Rows of a chart that fills the page.
constexpr double wide = 980;
constexpr double row_height = 28;
constexpr double bar_height = 16;
constexpr double label_width = 84;

/// Maps a range of values to positions in the drawing.
struct scale {
  double low = 0;
  double high = 1;
  double from = 0;
  double to = 1;

  double operator()(double x) const { return from + (x - low) / (high - low) * (to - from); }
};

struct extent {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(double x) {
    low = std::min(low, x);
    high = std::max(high, x);
  }
  bool empty() const { return low > high; }
};

bool is_finite(const chart_line::point& p) {
  return std::isfinite(p.x) && std::isfinite(p.y);
}

std::string open_svg(const std::string& title, double w, double h) {
  return fmt::format("<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
                     w, h, escape_html(title));
}

void put_y_axis(std::string& out, const scale& y, std::span<const double> ticks) {
  for (auto t : ticks) {
    print_to(out, "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" />", left,
             width - right, y(t), y(t));
    print_to(out, "<text class=\"tick\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
             left - 8, y(t) + 4, tick_text(t));
  }
}

void put_x_title(std::string& out, const std::string& title) {
  print_to(out, "<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n",
           width - right, height - 6, escape_html(title));
}

void put_line(std::string& out, const chart_line& line, const scale& x, const scale& y) {
  std::string path;
  bool pen_down = false;
  for (auto& p : line.points) {
    if (is_finite(p))
      print_to(path, "{}{:.1f} {:.1f}", pen_down ? "L" : "M", x(p.x), y(p.y));
    pen_down = is_finite(p);
  }
  print_to(out, "<path class=\"line {}\" d=\"{}\" />\n", line.style, path);
  // A single point would draw no line, so it gets a mark.
  if (!line.marks && line.points.size() > 1)
    return;
  for (auto& p : line.points)
    if (is_finite(p))
      print_to(out,
               "<circle class=\"mark {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"><title>{}: {:.5g}"
               "</title></circle>\n",
               line.style, x(p.x), y(p.y), line.points.size() > 60 ? 2 : 3.5,
               escape_html(line.name), p.y);
}

/// The label of a row whose bar begins at `y`.
void put_label(std::string& out, double y, const std::string& label) {
  print_to(out, "<text class=\"label\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
           label_width - 10, y + 13, escape_html(label));
}

} // namespace

std::vector<double> axis_ticks(double low, double high, std::size_t count) {
  // If all values are nearly equal, the axis gets some space around them.
  const auto size = std::max(std::abs(low), std::abs(high));
  if (!(high - low > 1e-9 * size) || size < 1e-290) {
    low -= size < 1e-290 ? 0 : size * 0.1;
    high += size < 1e-290 ? 1 : size * 0.1;
  }
  const auto raw = (high - low) / static_cast<double>(std::max<std::size_t>(count, 1));
  const auto power = std::pow(10, std::floor(std::log10(raw)));
  const auto digit = raw / power;
  const auto step = power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
  std::vector<double> result;
  // Without the tolerance of 1e-9, rounding errors could add a tick beyond `low` or `high` when
  // `low` or `high` is itself a tick.
  const auto first = std::floor(low / step + 1e-9);
  const auto last = std::ceil(high / step - 1e-9);
  for (auto i = first; i <= last; ++i)
    result.push_back(i * step);
  return result;
}

std::string tick_text(double x) {
  const auto size = std::abs(x);
  if (size >= 1e6 && size < 1e9)
    return fmt::format("{:.4g}M", x / 1e6);
  if (size >= 1e4 && size < 1e6)
    return fmt::format("{:.4g}k", x / 1e3);
  return fmt::format("{:.4g}", x);
}

std::string line_chart(const chart_axes& axes, std::span<const chart_line> lines) {
  extent xs;
  extent ys;
  for (auto& line : lines)
    for (auto& p : line.points)
      if (is_finite(p)) {
        xs.add(p.x);
        ys.add(p.y);
      }
  if (xs.empty())
    return "";
  if (axes.from_zero)
    ys.add(0);
  xs.add(0);
  const auto x_ticks = axis_ticks(xs.low, xs.high, 6);
  const auto y_ticks = axis_ticks(ys.low, ys.high);
  const scale x{0, xs.high > 0 ? xs.high : x_ticks.back(), left, width - right};
  const scale y{y_ticks.front(), y_ticks.back(), height - bottom, top};
  auto result = open_svg(axes.title, width, height);
  put_y_axis(result, y, y_ticks);
  for (auto t : x_ticks)
    if (t <= x.high * (1 + 1e-9))
      print_to(result,
               "<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
               x(t), height - bottom + 18, tick_text(t));
  put_x_title(result, axes.x);
  for (auto& line : lines)
    put_line(result, line, x, y);
  return result + "</svg>\n";
}

std::string bar_chart(const chart_axes& axes, std::span<const chart_bar> bars) {
  extent ys;
  for (auto& x : bars)
    if (std::isfinite(x.value))
      ys.add(x.value);
  if (ys.empty())
    return "";
  ys.add(0);
  const auto ticks = axis_ticks(0, ys.high, 4);
  const scale y{0, ticks.back(), height - bottom, top};
  auto result = open_svg(axes.title, width, height);
  put_y_axis(result, y, ticks);
  const auto slot = (width - left - right) / static_cast<double>(bars.size());
  const auto thickness = std::min(slot * 0.72, 56.0);
  for (std::size_t i = 0; i < bars.size(); ++i) {
    auto& bar = bars[i];
    const auto middle = left + (static_cast<double>(i) + 0.5) * slot;
    print_to(result, "<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
             middle, height - bottom + 18, escape_html(bar.label));
    if (!(bar.value > 0))
      continue;
    // Every bar is visible, however small its value.
    const auto size = std::max(y(0) - y(bar.value), 1.0);
    print_to(
      result,
      "<rect class=\"bar series-1\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\""
      " rx=\"2\"><title>{}: {}</title></rect>\n",
      middle - thickness / 2, y(0) - size, thickness, size, escape_html(bar.label),
      grouped(bar.value));
  }
  put_x_title(result, axes.x);
  return result + "</svg>\n";
}

std::string stacked_bars(const std::string& title, std::span<const chart_part> parts,
                         std::span<const chart_stack> stacks) {
  constexpr double notes = 130;
  double most = 0;
  const auto size = [](double x) { return std::isfinite(x) && x > 0 ? x : 0; };
  for (auto& stack : stacks) {
    double sum = 0;
    for (auto x : stack.parts)
      sum += size(x);
    most = std::max(most, sum);
  }
  if (most <= 0)
    return "";
  auto result = open_svg(title, wide, row_height * static_cast<double>(stacks.size()));
  const auto unit = (wide - label_width - notes) / most;
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    const auto y = row_height * static_cast<double>(i) + (row_height - bar_height) / 2;
    put_label(result, y, stacks[i].label);
    auto x = label_width;
    for (std::size_t p = 0; p < std::min(parts.size(), stacks[i].parts.size()); ++p) {
      const auto w = size(stacks[i].parts[p]) * unit;
      if (w > 0)
        print_to(result,
                 "<rect class=\"bar {}\" x=\"{:.1f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\">"
                 "<title>{}: {}</title></rect>",
                 parts[p].style, x, y, std::max(w - 1, 0.3), bar_height, escape_html(parts[p].name),
                 duration_text(stacks[i].parts[p]));
      x += w;
    }
    print_to(result, "<text class=\"tick\" x=\"{:.1f}\" y=\"{}\">{}</text>\n", x + 8, y + 13,
             escape_html(stacks[i].note));
  }
  return result + "</svg>\n";
}

std::string lanes(const std::string& title, std::span<const chart_lane> x, double length) {
  const auto bottom_of_lanes = row_height * static_cast<double>(x.size());
  auto result = open_svg(title, wide, bottom_of_lanes + 20);
  const scale at{0, length, label_width, wide - right};
  for (auto t : axis_ticks(0, length, 10))
    if (t <= length)
      print_to(result,
               "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1}\" />"
               "<text class=\"tick\" x=\"{0:.1f}\" y=\"{2}\" text-anchor=\"middle\">{3}</text>\n",
               at(t), bottom_of_lanes, bottom_of_lanes + 14, tick_text(t));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto y = row_height * static_cast<double>(i) + (row_height - bar_height) / 2;
    put_label(result, y, x[i].label);
    for (const auto& stretch : x[i].stretches) {
      const auto begin = at(std::clamp(stretch.begin, 0.0, length));
      const auto end = at(std::clamp(stretch.end, 0.0, length));
      print_to(result,
               "<rect class=\"bar {}\" x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\">"
               "<title>{}</title></rect>",
               stretch.style, begin, y, std::max(end - begin, 0.2), bar_height,
               escape_html(stretch.title));
    }
    result += '\n';
  }
  return result + "</svg>\n";
}

} // namespace troupe
