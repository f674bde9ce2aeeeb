#include "kernels/cpu/convolution.hpp"

#include "kernels/cpu/elementwise.hpp"

#include <algorithm>
#include <type_traits>

namespace troupe::cpu {

namespace {

/// A range of lines or columns of an image: [first, last).
struct span_of_image {
  std::size_t first;
  std::size_t last;
};

/// The part of the image that is under the window along one axis, if the window is at `position`.
span_of_image under(std::size_t position, std::int64_t stride, std::int64_t pad,
                    std::int64_t window, std::size_t extent) {
  const auto begin = static_cast<std::int64_t>(position) * stride - pad;
  const auto end = std::min(begin + window, static_cast<std::int64_t>(extent));
  return {static_cast<std::size_t>(std::max<std::int64_t>(begin, 0)),
          static_cast<std::size_t>(std::max<std::int64_t>(end, 0))};
}

/// Calls f(plane, position, rows, columns) for all positions of the window on the planes `planes`.
/// A plane is one channel of one image. `position` is the number of the result within its plane.
/// `rows` and `columns` describe the part of the image that is under the window.
template <class F>
void each_position(const images& in, const images& out, const window& how, range planes, F f) {
  for (auto plane = planes.begin; plane < planes.end; ++plane)
    for (std::size_t i = 0; i < out.height; ++i) {
      const auto rows = under(i, how.stride_y, how.pad_y, how.height, in.height);
      for (std::size_t j = 0; j < out.width; ++j)
        f(plane, i * out.width + j, rows, under(j, how.stride_x, how.pad_x, how.width, in.width));
    }
}

/// The offset in a plane of the largest element under the window. If several elements are the
/// largest, the offset of the first of them. If there are NaNs, the offset of the first NaN.
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

/// The usual window: 2 by 2, with strides of 2.
bool is_halving(const window& how) {
  return how == window{.height = 2, .width = 2, .stride_y = 2, .stride_x = 2};
}

/// 1 / number of elements under the window. This number includes elements of the padding. It does
/// not include the part of a window that extends beyond the padding (ceil_mode).
template <class T>
T share_of(const images& in, const images& out, const window& how, std::size_t position) {
  if (!how.ceil_mode)
    return T(1) / static_cast<T>(how.height * how.width);
  const auto covered = [](std::size_t i, std::int64_t stride, std::int64_t pad, std::int64_t size,
                          std::size_t extent) {
    const auto begin = static_cast<std::int64_t>(i) * stride - pad;
    return std::min(begin + size, static_cast<std::int64_t>(extent) + pad) - begin;
  };
  return T(1)
    / static_cast<T>(covered(position / out.width, how.stride_y, how.pad_y, how.height, in.height)
                     * covered(position % out.width, how.stride_x, how.pad_x, how.width, in.width));
}

/// Loads and stores N elements at a time, as a vector of up to 32 bytes. A smaller N is used if
/// there are too few elements for such a vector.
template <class T, std::size_t N>
struct group {
  using type [[gnu::vector_size(N * sizeof(T))]] = T;
  using unaligned [[gnu::vector_size(N * sizeof(T)), gnu::aligned(sizeof(T)), gnu::may_alias]] = T;

  static type load(const T* p) { return *reinterpret_cast<const unaligned*>(p); }
  static void store(T* p, type x) { *reinterpret_cast<unaligned*>(p) = x; }

  /// Of the 2 N elements from p on, every second one: elements 0, 2, 4, ..., or if `odd` is true,
  /// elements 1, 3, 5, ...
  template <bool odd>
  static type every_second(const T* p) {
    constexpr int o = odd ? 1 : 0;
    const auto a = load(p);
    const auto b = load(p + N);
    if constexpr (N == 8)
      return __builtin_shufflevector(a, b, o, o + 2, o + 4, o + 6, o + 8, o + 10, o + 12, o + 14);
    else if constexpr (N == 4)
      return __builtin_shufflevector(a, b, o, o + 2, o + 4, o + 6);
    else
      return __builtin_shufflevector(a, b, o, o + 2);
  }
  /// The reverse of every_second: stores an element of a, an element of b, and so on.
  static void store_by_turns(T* p, type a, type b) {
    if constexpr (N == 8) {
      store(p, __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11));
      store(p + N, __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15));
    } else if constexpr (N == 4) {
      store(p, __builtin_shufflevector(a, b, 0, 4, 1, 5));
      store(p + N, __builtin_shufflevector(a, b, 2, 6, 3, 7));
    } else {
      store(p, __builtin_shufflevector(a, b, 0, 2));
      store(p + N, __builtin_shufflevector(a, b, 1, 3));
    }
  }
};

template <class T>
struct group<T, 1> {
  static T load(const T* p) { return *p; }
  static void store(T* p, T x) { *p = x; }
  template <bool odd>
  static T every_second(const T* p) {
    return p[odd ? 1 : 0];
  }
  static void store_by_turns(T* p, T a, T b) {
    p[0] = a;
    p[1] = b;
  }
};

/// Compares two elements, of which a comes before b. True if b is larger than a. A NaN is larger
/// than any number, and the first NaN is the largest. For vectors, the result is a mask of
/// elements.
template <class V>
auto is_larger(V b, V a) {
  return (b > a) | ((b != b) & (a == a));
}

/// N neighbouring windows of 2 by 2 elements. In each window, a and b are above, and c and d are
/// below.
template <class T, std::size_t N>
struct windows {
  using part = group<T, N>;
  using V = decltype(part::load(nullptr));

  windows(const T* top, const T* bottom)
    : a(part::template every_second<false>(top)), b(part::template every_second<true>(top)),
      c(part::template every_second<false>(bottom)), d(part::template every_second<true>(bottom)),
      upper(is_larger(b, a) ? b : a), lower(is_larger(d, c) ? d : c) {}

  V largest() const { return is_larger(lower, upper) ? lower : upper; }

  /// Writes dy at the largest element of each window, and 0 at its other elements.
  void spread(V dy, T* above, T* below) const {
    const V zero{};
    const V up = is_larger(lower, upper) ? zero : dy;
    const V down = is_larger(lower, upper) ? dy : zero;
    part::store_by_turns(above, is_larger(b, a) ? zero : up, is_larger(b, a) ? up : zero);
    part::store_by_turns(below, is_larger(d, c) ? zero : down, is_larger(d, c) ? down : zero);
  }

  V a, b, c, d;
  V upper, lower;
};

/// Calls f(windows, number of the first window) for n windows in groups of N. The last group may
/// overlap the group before it. If there are fewer than N windows, smaller groups are used.
template <std::size_t N, class T, class F>
void each_window(std::size_t n, const T* top, const T* bottom, F f) {
  if constexpr (N > 1) {
    if (n < N)
      return each_window<N / 2>(n, top, bottom, f);
  }
  for (std::size_t j = 0; j < n; j += N) {
    const auto first = std::min(j, n - N);
    f(windows<T, N>(top + 2 * first, bottom + 2 * first), first);
  }
}

template <class T>
constexpr std::size_t most_lanes = 32 / sizeof(T);

template <class T>
void halve_line(std::size_t n, const T* top, const T* bottom, T* y) {
  each_window<most_lanes<T>>(n, top, bottom, [y](const auto& x, std::size_t first) {
    std::remove_cvref_t<decltype(x)>::part::store(y + first, x.largest());
  });
}

/// Writes dy at the elements that halve_line selects, and 0 at all other elements.
template <class T>
void spread_line(std::size_t n, const T* dy, const T* top, const T* bottom, T* above, T* below) {
  each_window<most_lanes<T>>(n, top, bottom, [&](const auto& x, std::size_t first) {
    using part = typename std::remove_cvref_t<decltype(x)>::part;
    x.spread(part::load(dy + first), above + 2 * first, below + 2 * first);
  });
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
  each_position(in, out, how, planes,
                [&](std::size_t plane, std::size_t position, auto rows, auto columns) {
                  T total = 0;
                  for (auto u = rows.first; u < rows.last; ++u)
                    for (auto v = columns.first; v < columns.last; ++v)
                      total += x[plane * in.pixels() + u * in.width + v];
                  y[plane * out.pixels() + position] = share_of<T>(in, out, how, position) * total;
                });
}

template <class T>
void average_pool_gradient(const images& in, const images& out, const window& how, const T* dy,
                           T* dx, range planes) {
  std::fill_n(dx + planes.begin * in.pixels(), planes.size() * in.pixels(), T(0));
  each_position(
    in, out, how, planes, [&](std::size_t plane, std::size_t position, auto rows, auto columns) {
      const T part = share_of<T>(in, out, how, position) * dy[plane * out.pixels() + position];
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
