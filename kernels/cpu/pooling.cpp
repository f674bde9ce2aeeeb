#include "kernels/cpu/convolution.hpp"

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

/// Calls f(plane, position, rows, columns) for all positions of the window on all planes (images x
/// channels): `position` counts within the plane of results.
template <class F>
void each_position(const images& in, const images& out, const window& how, F f) {
  for (std::size_t plane = 0; plane < in.count * in.channels; ++plane)
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

} // namespace

template <class T>
void max_pool_select(const images& in, const images& out, const window& how, const T* v, const T* x,
                     T* y) {
  each_position(
    in, out, how, [&](std::size_t plane, std::size_t position, auto rows, auto columns) {
      const auto begin = plane * in.pixels();
      y[plane * out.pixels() + position] = v[begin + largest(x + begin, in.width, rows, columns)];
    });
}

template <class T>
void max_pool_gradient(const images& in, const images& out, const window& how, const T* dy,
                       const T* x, T* dx) {
  std::fill_n(dx, in.count * in.per_image(), T(0));
  each_position(in, out, how,
                [&](std::size_t plane, std::size_t position, auto rows, auto columns) {
                  const auto begin = plane * in.pixels();
                  dx[begin + largest(x + begin, in.width, rows, columns)] +=
                    dy[plane * out.pixels() + position];
                });
}

template <class T>
void average_pool(const images& in, const images& out, const window& how, const T* x, T* y) {
  const T share = T(1) / static_cast<T>(how.height * how.width);
  each_position(in, out, how,
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
                           T* dx) {
  const T share = T(1) / static_cast<T>(how.height * how.width);
  std::fill_n(dx, in.count * in.per_image(), T(0));
  each_position(in, out, how,
                [&](std::size_t plane, std::size_t position, auto rows, auto columns) {
                  const T part = share * dy[plane * out.pixels() + position];
                  for (auto u = rows.first; u < rows.last; ++u)
                    for (auto v = columns.first; v < columns.last; ++v)
                      dx[plane * in.pixels() + u * in.width + v] += part;
                });
}

#define TROUPE_INSTANTIATE(T)                                                                      \
  template void max_pool_select(const images&, const images&, const window&, const T*, const T*,   \
                                T*);                                                               \
  template void max_pool_gradient(const images&, const images&, const window&, const T*, const T*, \
                                  T*);                                                             \
  template void average_pool(const images&, const images&, const window&, const T*, T*);           \
  template void average_pool_gradient(const images&, const images&, const window&, const T*, T*);

TROUPE_INSTANTIATE(float)
TROUPE_INSTANTIATE(double)
#undef TROUPE_INSTANTIATE

} // namespace troupe::cpu
