#include "kernels/data/digits.hpp"

#include "kernels/data/digit_strokes.hpp"
#include "kernels/random.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

// The bytes of the digits are the same on every machine. This file therefore uses only + - * / and
// sqrt, and the library is compiled without fused multiply-adds (kernels/CMakeLists.txt).

namespace troupe {

namespace {

constexpr int side = static_cast<int>(digit_side);
constexpr std::size_t pixels = digit_side * digit_side;
constexpr int pieces_per_span = 5; // straight pieces of a spline between two of its points

/// How much the digits vary. With these values, an MLP 784-128-10 reaches about 97 % with 8,000
/// digits.
struct spread {
  double jitter = 0.13; // of each control point, in units of the drawing
  double turn = 0.15;   // tan(half the largest angle, 17 degrees)
  double shear = 0.35;
  double narrow = 0.62; // smallest horizontal scale; the largest is 1.1
  double low = 0.75;    // smallest vertical scale; the largest is 1.05
  double shift = 2.2;   // pixels
  double thin = 0.6;    // smallest half width of the pen, in pixels
  double thick = 1.7;   // largest
  double faint = 140;   // least ink; the maximum is 255
  double noise = 14;    // largest standard deviation, in grey levels
};
constexpr spread amount{};

/// Uniform in [low, high). This is a copy of random_stream::uniform, an inline function in a
/// header. The linker may choose another file's copy of that function, in which the compiler may
/// have used fused operations.
double between(random_stream& random, double low, double high) noexcept {
  return low + (high - low) * random.uniform();
}

/// Maps points of the drawing to pixels: (x, y) -> (a x + b y + c, d x + e y + f).
struct affine {
  double a, b, c, d, e, f;

  stroke_point operator()(double x, double y) const noexcept {
    return {static_cast<float>(a * x + b * y + c), static_cast<float>(d * x + e * y + f)};
  }
};

affine random_affine(random_stream& random) noexcept {
  const double t = between(random, -amount.turn, amount.turn);
  const double cosine = (1 - t * t) / (1 + t * t); // of the angle whose half has the tangent t
  const double sine = 2 * t / (1 + t * t);
  const double shear = between(random, -amount.shear, amount.shear);
  const double unit = 9.5; // pixels
  const double sx = unit * between(random, amount.narrow, 1.1);
  const double sy = unit * between(random, amount.low, 1.05);
  const double cx = side / 2.0 - 0.5 + between(random, -amount.shift, amount.shift);
  const double cy = side / 2.0 - 0.5 + between(random, -amount.shift, amount.shift);
  return {cosine * sx, (cosine * shear - sine) * sy, cx,
          sine * sx,   (sine * shear + cosine) * sy, cy};
}

/// How much of each pixel the ink covers, 0 .. 1.
using canvas = std::array<float, pixels>;

/// Draws a line from p to q with a round pen. Coverage falls from 1 to 0 within a pixel around the
/// pen's edge.
void draw_line(canvas& image, stroke_point p, stroke_point q, float half_width) noexcept {
  const float reach = half_width + 0.5F;
  const auto low = [&](float u, float v) {
    return std::clamp(static_cast<int>(std::min(u, v) - reach), 0, side - 1);
  };
  const auto high = [&](float u, float v) {
    return std::clamp(static_cast<int>(std::max(u, v) + reach) + 1, 0, side - 1);
  };
  const float dx = q.x - p.x;
  const float dy = q.y - p.y;
  const float length2 = std::max(dx * dx + dy * dy, 1e-6F);
  for (int y = low(p.y, q.y); y <= high(p.y, q.y); ++y)
    for (int x = low(p.x, q.x); x <= high(p.x, q.x); ++x) {
      const float px = static_cast<float>(x) - p.x;
      const float py = static_cast<float>(y) - p.y;
      const float along = std::clamp((px * dx + py * dy) / length2, 0.0F, 1.0F);
      const float ex = px - along * dx;
      const float ey = py - along * dy;
      const float distance = std::sqrt(ex * ex + ey * ey);
      float& pixel = image[static_cast<std::size_t>(y * side + x)];
      pixel = std::max(pixel, std::clamp(reach - distance, 0.0F, 1.0F));
    }
}

/// One coordinate of the spline between p1 and p2 at t in 0 .. 1 (Catmull and Rom, 1974).
double spline(double p0, double p1, double p2, double p3, double t) noexcept {
  const double c1 = p2 - p0;
  const double c2 = 2 * p0 - 5 * p1 + 4 * p2 - p3;
  const double c3 = 3 * (p1 - p2) + p3 - p0;
  return p1 + t * (c1 + t * (c2 + t * c3)) / 2;
}

void draw_stroke(canvas& image, const stroke& pen, const affine& place, float half_width,
                 random_stream& random) noexcept {
  std::array<stroke_point, max_stroke_points> jittered;
  const auto points = std::span{jittered}.first(pen.points.size());
  std::ranges::transform(pen.points, points.begin(), [&](stroke_point p) {
    const double dx = between(random, -amount.jitter, amount.jitter);
    const double dy = between(random, -amount.jitter, amount.jitter);
    return place(p.x + dx, p.y + dy);
  });
  for (std::size_t i = 0; i + 1 < points.size(); ++i) {
    const auto p1 = points[i];
    const auto p2 = points[i + 1];
    const auto p0 = i > 0 ? points[i - 1] : p1;
    const auto p3 = i + 2 < points.size() ? points[i + 2] : p2;
    const int pieces = pen.curved ? pieces_per_span : 1;
    auto from = p1;
    for (int k = 1; k <= pieces; ++k) {
      const double t = static_cast<double>(k) / pieces;
      const stroke_point to{
        static_cast<float>(pen.curved ? spline(p0.x, p1.x, p2.x, p3.x, t) : p2.x),
        static_cast<float>(pen.curved ? spline(p0.y, p1.y, p2.y, p3.y, t) : p2.y)};
      draw_line(image, from, to, half_width);
      from = to;
    }
  }
}

/// Turns coverage into grey levels: multiplies by the darkness of the ink, and adds noise. The
/// noise of a pixel is a sum of four uniform bytes, minus the mean of such sums (510), times a
/// factor. The standard deviation of the sums is 148. A random number has 8 bytes, enough for two
/// pixels.
void develop(const canvas& image, std::span<std::uint8_t> out, random_stream& random) noexcept {
  const float ink = static_cast<float>(between(random, amount.faint, 255.0));
  const float noise = static_cast<float>(between(random, 0.0, amount.noise)) / 148.0F;
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < pixels; ++i) {
    bits = i % 2 == 0 ? random.next() : bits >> 32;
    const auto sum = static_cast<int>((bits & 0xff) + (bits >> 8 & 0xff) + (bits >> 16 & 0xff)
                                      + (bits >> 24 & 0xff));
    const float grey = image[i] * ink + static_cast<float>(sum - 510) * noise;
    out[i] = static_cast<std::uint8_t>(std::clamp(grey + 0.5F, 0.0F, 255.0F));
  }
}

/// Draws one digit into `out` (28 * 28) and returns its class.
std::uint8_t draw_digit(random_stream& random, std::span<std::uint8_t> out) noexcept {
  const auto digit = static_cast<std::uint8_t>(random.below(digit_classes));
  const auto ways = digit_shapes(digit);
  const auto way = ways[random.below(ways.size())];
  const auto place = random_affine(random);
  const auto half_width = static_cast<float>(between(random, amount.thin, amount.thick));
  canvas image{};
  for (const auto& pen : way)
    draw_stroke(image, pen, place, half_width, random);
  develop(image, out, random);
  return digit;
}

} // namespace

std::shared_ptr<const image_dataset> generate_digits(std::uint64_t count, std::uint64_t seed) {
  std::vector<std::uint8_t> grey(count * pixels);
  std::vector<std::uint8_t> labels(count);
  const std::uint64_t key = stream_key(seed, "digits");
  for (std::uint64_t i = 0; i < count; ++i) {
    random_stream random{key, {i}};
    labels[i] = draw_digit(random, std::span{grey}.subspan(i * pixels, pixels));
  }
  return std::make_shared<const image_dataset>(std::move(grey), std::move(labels), digit_side,
                                               digit_side, digit_classes);
}

} // namespace troupe
