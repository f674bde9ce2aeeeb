#include "kernels/cpu/convolution.hpp"

#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/vectorize.hpp"

#include <algorithm>

namespace troupe::cpu {

namespace {

/// A part of a line or column of an image: [first, last).
struct span_of_image {
  std::size_t first;
  std::size_t last;
};

/// What of the window lies in the image, at a position along one axis.
span_of_image under(std::size_t position, std::int64_t stride, std::int64_t pad,
                    std::int64_t window, std::size_t extent) {
  const auto begin = static_cast<std::int64_t>(position) * stride - pad;
  const auto end = std::min(begin + window, static_cast<std::int64_t>(extent));
  return {static_cast<std::size_t>(std::max<std::int64_t>(begin, 0)),
          static_cast<std::size_t>(std::max<std::int64_t>(end, 0))};
}

/// Calls f(plane, position, rows, columns) for all positions of the window on these planes (images
/// x channels): `position` counts within the plane of results.
template <class F>
void each_position(const images& in, const images& out, const window& how, range planes, F f) {
  for (auto plane = planes.begin; plane < planes.end; ++plane)
    for (std::size_t i = 0; i < out.height; ++i) {
      const auto rows = under(i, how.stride_y, how.pad_y, how.height, in.height);
      for (std::size_t j = 0; j < out.width; ++j)
        f(plane, i * out.width + j, rows, under(j, how.stride_x, how.pad_x, how.width, in.width));
    }
}

/// Offset of the largest element in a plane; the first of equal ones, or the first NaN.
template <class T>
std::size_t largest(const T* x, std::size_t width, span_of_image rows, span_of_image columns) {
  auto best = rows.first * width + columns.first;
  for (auto u = rows.first; u < rows.last; ++u)
    for (auto v = columns.first; v < columns.last; ++v) {
      const auto i = u * width + v;
      if (x[i] > x[best] || (x[i] != x[i] && x[best] == x[best]))
        best = i;
    }
  return best;
}

/// The usual window: 2 by 2, moved by as much.
bool is_halving(const window& how) {
  return how.height == 2 && how.width == 2 && how.stride_y == 2 && how.stride_x == 2
    && how.pad_y == 0 && how.pad_x == 0;
}

/// Whether b takes the place of a, which comes before it.
template <class T>
bool is_larger(T b, T a) {
  return (b > a) | ((b != b) & (a == a));
}

template <class T>
void halve_line(std::size_t n, const T* top, const T* bottom, T* y) {
  TROUPE_INDEPENDENT
  for (std::size_t j = 0; j < n; ++j) {
    const T a = top[2 * j];
    const T b = top[2 * j + 1];
    const T c = bottom[2 * j];
    const T d = bottom[2 * j + 1];
    const T upper = is_larger(b, a) ? b : a;
    const T lower = is_larger(d, c) ? d : c;
    y[j] = is_larger(lower, upper) ? lower : upper;
  }
}

/// What halve_line took gets dy, the others 0.
template <class T>
void spread_line(std::size_t n, const T* dy, const T* top, const T* bottom, T* above, T* below) {
  TROUPE_INDEPENDENT
  for (std::size_t j = 0; j < n; ++j) {
    const T a = top[2 * j];
    const T b = top[2 * j + 1];
    const T c = bottom[2 * j];
    const T d = bottom[2 * j + 1];
    const bool right_above = is_larger(b, a);
    const bool right_below = is_larger(d, c);
    const bool is_below = is_larger(right_below ? d : c, right_above ? b : a);
    above[2 * j] = !is_below & !right_above ? dy[j] : T(0);
    above[2 * j + 1] = !is_below & right_above ? dy[j] : T(0);
    below[2 * j] = is_below & !right_below ? dy[j] : T(0);
    below[2 * j + 1] = is_below & right_below ? dy[j] : T(0);
  }
}

template <class T>
void spread_plane(const images& in, const images& out, const T* dy, const T* x, T* dx) {
  for (std::size_t i = 0; i < out.height; ++i) {
    const auto line = 2 * i * in.width;
    spread_line(out.width, dy + i * out.width, x + line, x + line + in.width, dx + line,
                dx + line + in.width);
    if (in.width > 2 * out.width)
      dx[line + in.width - 1] = dx[line + 2 * in.width - 1] = T(0);
  }
  std::fill(dx + 2 * out.height * in.width, dx + in.pixels(), T(0));
}

} // namespace

template <class T>
void max_pool_select(const images& in, const images& out, const window& how, const T* v, const T* x,
                     T* y, range planes) {
  if (is_halving(how) && v == x) {
    for (auto plane = planes.begin; plane < planes.end; ++plane)
      for (std::size_t i = 0; i < out.height; ++i) {
        const T* top = x + plane * in.pixels() + 2 * i * in.width;
        halve_line(out.width, top, top + in.width, y + plane * out.pixels() + i * out.width);
      }
    return;
  }
  each_position(
    in, out, how, planes, [&](std::size_t plane, std::size_t position, auto rows, auto columns) {
      const auto begin = plane * in.pixels();
      y[plane * out.pixels() + position] = v[begin + largest(x + begin, in.width, rows, columns)];
    });
}

template <class T>
void max_pool_gradient(const images& in, const images& out, const window& how, const T* dy,
                       const T* x, const finish<T>& last, T* dx, range planes) {
  for (auto plane = planes.begin; plane < planes.end; ++plane) {
    const auto begin = plane * in.pixels();
    T* const to = dx + begin;
    if (is_halving(how)) {
      spread_plane(in, out, dy + plane * out.pixels(), x + begin, to);
    } else {
      std::fill_n(to, in.pixels(), T(0));
      each_position(in, out, how, {plane, plane + 1},
                    [&](std::size_t, std::size_t position, auto rows, auto columns) {
                      to[largest(x + begin, in.width, rows, columns)] +=
                        dy[plane * out.pixels() + position];
                    });
    }
    add_row_bias<T>(1, in.pixels(), to, nullptr, last.after,
                    last.operand != nullptr ? last.operand + begin : nullptr, to);
  }
}

template <class T>
void average_pool(const images& in, const images& out, const window& how, const T* x, T* y,
                  range planes) {
  const T share = T(1) / static_cast<T>(how.height * how.width);
  each_position(in, out, how, planes,
                [&](std::size_t plane, std::size_t position, auto rows, auto columns) {
                  T total = 0;
                  for (auto u = rows.first; u < rows.last; ++u)
                    for (auto v = columns.first; v < columns.last; ++v)
                      total += x[plane * in.pixels() + u * in.width + v];
                  y[plane * out.pixels() + position] = share * total;
                });
}

template <class T>
void average_pool_gradient(const images& in, const images& out, const window& how, const T* dy,
                           T* dx, range planes) {
  const T share = T(1) / static_cast<T>(how.height * how.width);
  std::fill_n(dx + planes.begin * in.pixels(), planes.size() * in.pixels(), T(0));
  each_position(in, out, how, planes,
                [&](std::size_t plane, std::size_t position, auto rows, auto columns) {
                  const T part = share * dy[plane * out.pixels() + position];
                  for (auto u = rows.first; u < rows.last; ++u)
                    for (auto v = columns.first; v < columns.last; ++v)
                      dx[plane * in.pixels() + u * in.width + v] += part;
                });
}

#define TROUPE_INSTANTIATE(T)                                                                      \
  template void max_pool_select(const images&, const images&, const window&, const T*, const T*,   \
                                T*, range);                                                        \
  template void max_pool_gradient(const images&, const images&, const window&, const T*, const T*, \
                                  const finish<T>&, T*, range);                                    \
  template void average_pool(const images&, const images&, const window&, const T*, T*, range);    \
  template void average_pool_gradient(const images&, const images&, const window&, const T*, T*,   \
                                      range);

TROUPE_INSTANTIATE(float)
TROUPE_INSTANTIATE(double)
#undef TROUPE_INSTANTIATE

} // namespace troupe::cpu
