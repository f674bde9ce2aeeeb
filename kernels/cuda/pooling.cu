#include "kernels/cuda/convolution.hpp"
#include "kernels/cuda/divider.hpp"
#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed_view.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe::cuda {

namespace {

/// A range [begin, end) of lines, columns or windows.
struct part {
  int begin, end;
};

/// One direction (vertical or horizontal) in which windows move over an image. `image` is the
/// number of lines (or columns) of the image, and `windows` is the number of windows. A padded
/// image has fewer than size_limit pixels.
struct axis {
  int window, stride, pad, image, windows;
  divider by_stride;

  /// The lines of the image that the window at this position covers.
  TROUPE_DEVICE part under(int position) const {
    const auto begin = position * stride - pad;
    const auto end = begin + window;
    return {begin > 0 ? begin : 0, end < image ? end : image};
  }
  /// The number of lines under a window, padding included.
  TROUPE_DEVICE int covered(int position) const {
    const auto begin = position * stride - pad;
    return (begin + window < image + pad ? begin + window : image + pad) - begin;
  }
  /// The windows that cover a line of the image.
  TROUPE_DEVICE part over(int line) const {
    const auto first = line + pad - window + 1;
    const auto last = over_stride(line + pad) + 1;
    return {first > 0 ? over_stride(first + stride - 1) : 0, last < windows ? last : windows};
  }
  TROUPE_DEVICE int over_stride(int x) const {
    return static_cast<int>(by_stride.quotient(static_cast<std::size_t>(x)));
  }

  // An image is divided into cells of `stride` lines. The first cell begins in the padding. If
  // windows do not overlap, each window is in its own cell. The last cells may have no window.

  int cells() const { return (image + pad + stride - 1) / stride; }
  /// The lines of the image in this cell.
  TROUPE_DEVICE part cell(int number) const {
    const auto begin = number * stride - pad;
    const auto end = begin + stride;
    return {begin > 0 ? begin : 0, end < image ? end : image};
  }
};

struct pooling {
  axis y, x;
  divider pixels, positions; // per plane (a channel of an image)
  divider width, windows;    // per line: pixels in a line of pixels, windows in a line of windows

  struct place {
    int line, column;
  };
  /// The line and the column of pixel or window number i.
  TROUPE_DEVICE static place place_of(const divider& width, std::size_t i) {
    const auto [line, column] = width(i);
    return {static_cast<int>(line), static_cast<int>(column)};
  }
  TROUPE_DEVICE unsigned at(int line, int column) const {
    return static_cast<unsigned>(line * x.image + column);
  }
  /// The weight of an element in the mean over window (i, j).
  TROUPE_DEVICE float share(int i, int j) const {
    return 1.0F / static_cast<float>(y.covered(i) * x.covered(j));
  }
  /// The offset, within a plane, of the largest element under window (i, j). If several elements
  /// are equal, it is the first of them. If there is a NaN, it is the first NaN.
  template <class In>
  TROUPE_DEVICE std::size_t largest(const In& from, std::size_t begin, int i, int j) const {
    const auto lines = y.under(i);
    const auto columns = x.under(j);
    auto best = at(lines.begin, columns.begin);
    auto value = from.load(begin + best);
    for (auto u = lines.begin; u < lines.end; ++u)
      for (auto v = columns.begin; v < columns.end; ++v) {
        const auto other = from.load(begin + at(u, v));
        if (other > value || (other != other && value == value)) {
          best = at(u, v);
          value = other;
        }
      }
    return best;
  }
};

/// A thread computes an element of the result at a time.
template <class In, class Out>
struct max_select_kernel {
  pooling how;
  In v, x; // (planes, pixels)
  Out out; // (planes, positions)

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto k = t.first(); k < out.size; k += t.stride()) {
      const auto [plane, position] = how.positions(k);
      const auto begin = plane * how.pixels.divisor();
      const auto [i, j] = pooling::place_of(how.windows, position);
      out.store(k, v.load(begin + how.largest(x, begin, i, j)));
    }
  }
};

/// A thread computes an element of dx at a time. It adds up dy over the windows that cover the
/// element, in the order of the windows.
template <class In, class Out>
struct max_gradient_kernel {
  static constexpr unsigned blocks_at_once = 1;
  pooling how;
  In dy;  // (planes, positions)
  In x;   // (planes, pixels)
  Out dx; // (planes, pixels)

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto k = t.first(); k < dx.size; k += t.stride()) {
      const auto plane = how.pixels.quotient(k);
      const auto pixel = static_cast<unsigned>(k - plane * how.pixels.divisor());
      const auto [line, column] = pooling::place_of(how.width, pixel);
      const auto rows = how.y.over(line);
      const auto columns = how.x.over(column);
      float total = 0;
      for (auto i = rows.begin; i < rows.end; ++i)
        for (auto j = columns.begin; j < columns.end; ++j)
          if (how.largest(x, plane * how.pixels.divisor(), i, j) == pixel)
            total += dy.load(plane * how.positions.divisor()
                             + static_cast<std::size_t>(i * how.x.windows + j));
      dx.store(k, total);
    }
  }
};

/// Like max_gradient_kernel, for windows that do not overlap. A thread computes the elements of dx
/// in one cell at a time. A cell of more than most_per_cell elements would be too much work for one
/// thread.
constexpr std::int64_t most_per_cell = 16;
template <class In, class Out>
struct max_cell_gradient_kernel {
  static constexpr unsigned blocks_at_once = 1;
  pooling how;
  divider cells, line; // cells per plane, and cells per line of cells
  std::size_t all;     // the number of all cells
  In dy;               // (planes, positions)
  In x;                // (planes, pixels)
  Out dx;              // (planes, pixels)

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto k = t.first(); k < all; k += t.stride()) {
      const auto [plane, cell] = cells(k);
      const auto begin = plane * how.pixels.divisor();
      const auto [i, j] = pooling::place_of(line, cell);
      const auto lines = how.y.cell(i);
      const auto columns = how.x.cell(j);
      auto largest = how.pixels.divisor(); // no pixel has this number
      float gradient = 0;
      if (i < how.y.windows && j < how.x.windows) {
        largest = how.largest(x, begin, i, j);
        gradient += dy.load(plane * how.positions.divisor()
                            + static_cast<std::size_t>(i * how.x.windows + j));
      }
      for (auto u = lines.begin; u < lines.end; ++u)
        for (auto v = columns.begin; v < columns.end; ++v)
          dx.store(begin + how.at(u, v), how.at(u, v) == largest ? gradient : 0.0F);
    }
  }
};

template <class In, class Out>
struct average_kernel {
  pooling how;
  In x;    // (planes, pixels)
  Out out; // (planes, positions)

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto k = t.first(); k < out.size; k += t.stride()) {
      const auto [plane, position] = how.positions(k);
      const auto begin = plane * how.pixels.divisor();
      const auto [i, j] = pooling::place_of(how.windows, position);
      const auto lines = how.y.under(i);
      const auto columns = how.x.under(j);
      float total = 0;
      for (auto u = lines.begin; u < lines.end; ++u)
        for (auto v = columns.begin; v < columns.end; ++v)
          total += x.load(begin + how.at(u, v));
      out.store(k, how.share(i, j) * total);
    }
  }
};

template <class In, class Out>
struct average_gradient_kernel {
  pooling how;
  In dy;  // (planes, positions)
  Out dx; // (planes, pixels)

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto k = t.first(); k < dx.size; k += t.stride()) {
      const auto [plane, pixel] = how.pixels(k);
      const auto [line, column] = pooling::place_of(how.width, pixel);
      const auto rows = how.y.over(line);
      const auto columns = how.x.over(column);
      const auto begin = plane * how.positions.divisor();
      float total = 0;
      for (auto i = rows.begin; i < rows.end; ++i)
        for (auto j = columns.begin; j < columns.end; ++j)
          total +=
            how.share(i, j) * dy.load(begin + static_cast<std::size_t>(i * how.x.windows + j));
      dx.store(k, total);
    }
  }
};

std::size_t elements(const images& x) {
  return x.count * x.per_image();
}

pooling pooling_of(const images& in, const images& out, const window& how) {
  const auto number = [](auto x) { return static_cast<int>(x); };
  const auto axis_of = [&](std::int64_t window, std::int64_t stride, std::int64_t pad,
                           std::size_t image, std::size_t windows) {
    // by_stride divides numbers that are less than the number of lines of the padded image plus a
    // stride.
    return axis{number(window), number(stride),  number(pad),
                number(image),  number(windows), {static_cast<std::size_t>(stride), 1U << 31}};
  };
  return {axis_of(how.height, how.stride_y, how.pad_y, in.height, out.height),
          axis_of(how.width, how.stride_x, how.pad_x, in.width, out.width),
          {in.pixels(), elements(in)},
          {out.pixels(), elements(out)},
          {in.width, in.pixels()},
          {out.width, out.pixels()}};
}

} // namespace

void max_pool_select(stream where, const images& in, const images& out, const window& how,
                     mixed_input v, mixed_input x, mixed_output y) {
  with_views(
    y, elements(out),
    [&](auto to, auto values, auto from) {
      launch(where, "max_pool_select", {blocks_for(to.size)},
             max_select_kernel{pooling_of(in, out, how), values, from, to});
    },
    read_elements{v, elements(in)}, read_elements{x, elements(in)});
}

void max_pool_gradient(stream where, const images& in, const images& out, const window& how,
                       mixed_input dy, mixed_input x, mixed_output dx) {
  const auto n = elements(in);
  with_views(
    mixed_output{dx.data, dy.type}, n,
    [&](auto narrow, auto gradient, auto from) {
      const auto launch_to = [&](auto to) {
        const auto sizes = pooling_of(in, out, how);
        if (how.stride_y < how.height || how.stride_x < how.width
            || how.stride_y * how.stride_x > most_per_cell) {
          launch(where, "max_pool_gradient", {blocks_for(n)},
                 max_gradient_kernel{sizes, gradient, from, to});
          return;
        }
        const auto across = static_cast<std::size_t>(sizes.x.cells());
        const auto cells = static_cast<std::size_t>(sizes.y.cells()) * across;
        const auto all = cells * in.count * in.channels;
        launch(
          where, "max_pool_gradient", {blocks_for(all)},
          max_cell_gradient_kernel{sizes, {cells, all}, {across, cells}, all, gradient, from, to});
      };
      if (dx.type == dtype::float32)
        launch_to(view<float>{static_cast<float*>(dx.data), n});
      else
        launch_to(narrow);
    },
    read_elements{dy, elements(out)}, read_elements{x, n});
}

void average_pool(stream where, const images& in, const images& out, const window& how,
                  mixed_input x, mixed_output y) {
  with_views(
    y, elements(out),
    [&](auto to, auto from) {
      launch(where, "average_pool", {blocks_for(to.size)},
             average_kernel{pooling_of(in, out, how), from, to});
    },
    read_elements{x, elements(in)});
}

void average_pool_gradient(stream where, const images& in, const images& out, const window& how,
                           mixed_input dy, mixed_output dx) {
  with_views(
    dx, elements(in),
    [&](auto to, auto gradient) {
      launch(where, "average_pool_gradient", {blocks_for(to.size)},
             average_gradient_kernel{pooling_of(in, out, how), gradient, to});
    },
    read_elements{dy, elements(out)});
}

} // namespace troupe::cuda
