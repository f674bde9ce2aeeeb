#include "kernels/cuda/convolution.hpp"

#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed_view.hpp"
#include "kernels/cuda/reductions.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <type_traits>

namespace troupe::cuda {

namespace {

/// Edge of a tile of the result, and depth of a step. Each thread computes 4 x 4 elements.
constexpr unsigned edge = 64;
constexpr unsigned depth = 16;
constexpr unsigned own = 4;
/// Threads along an edge.
constexpr unsigned along = edge / own;
static_assert(along * along == block_threads);
/// Rows of a's tile are padded, so that a warp writes to different banks.
constexpr unsigned a_row = edge + 1;
/// Memory for tiles of both operands, and later for the result.
constexpr std::size_t tile_elements = std::max(depth * a_row + depth * edge, edge* edge);

/// Sizes of a convolution, as numbers that are quick to divide by.
struct geometry {
  unsigned count, channels, height, width;      // images
  unsigned filters, out_height, out_width;      // result
  unsigned window_height, window_width, groups; // channels / groups of a window
  int stride_y, stride_x, pad_y, pad_x, dilation_y, dilation_x;

  TROUPE_DEVICE unsigned positions() const { return out_height * out_width; }
  TROUPE_DEVICE unsigned window() const { return window_height * window_width; }
  TROUPE_DEVICE unsigned group_channels() const { return channels / groups; }
  TROUPE_DEVICE unsigned group_filters() const { return filters / groups; }
  TROUPE_DEVICE std::size_t at_image(unsigned n, unsigned c) const {
    return (std::size_t{n} * channels + c) * height * width;
  }
  TROUPE_DEVICE std::size_t at_result(unsigned n, unsigned f) const {
    return (std::size_t{n} * filters + f) * positions();
  }
  /// Element (channel, u, v) of the patch at a position of image n; 0 beyond the image.
  template <class In>
  TROUPE_DEVICE float patch(const In& x, unsigned group, unsigned n, unsigned position,
                            unsigned element) const {
    const auto c = group * group_channels() + element / window();
    const auto inside = element % window();
    const int y = static_cast<int>(position / out_width) * stride_y - pad_y
      + static_cast<int>(inside / window_width) * dilation_y;
    const int z = static_cast<int>(position % out_width) * stride_x - pad_x
      + static_cast<int>(inside % window_width) * dilation_x;
    const bool within =
      y >= 0 && y < static_cast<int>(height) && z >= 0 && z < static_cast<int>(width);
    return within ? x.load(at_image(n, c) + static_cast<unsigned>(y) * std::size_t{width}
                           + static_cast<unsigned>(z))
                  : 0;
  }
};

/// c (m, n) = a (m, k) b (k, n) for each group. The problem defines the elements of a, b and c. The
/// sum over k is divided into parts.
template <class Problem>
struct implicit_product {
  Problem problem;
  unsigned m, n, k, groups, parts;

  TROUPE_DEVICE void load_tiles(const thread& t, const view<float>& tiles, unsigned group,
                                unsigned i0, unsigned j0, unsigned k0, unsigned end) const {
    for (unsigned x = t.index(); x < depth * edge; x += block_threads) {
      const auto ka = k0 + x % depth;
      const auto i = i0 + x / depth;
      tiles.store(x % depth * a_row + x / depth, i < m && ka < end ? problem.a(group, i, ka) : 0);
      const auto kb = k0 + x / edge;
      const auto j = j0 + x % edge;
      tiles.store(depth * a_row + x, j < n && kb < end ? problem.b(group, kb, j) : 0);
    }
  }

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto tiles = t.shared<float>(tile_elements);
    const auto rows = (m + edge - 1) / edge;
    const auto columns = (n + edge - 1) / edge;
    const auto tx = t.index() % along;
    const auto ty = t.index() / along;
    const auto tasks = std::size_t{rows} * columns * groups * parts;
    for (auto task = t.block(); task < tasks; task += t.blocks()) {
      const auto i0 = static_cast<unsigned>(task % rows) * edge;
      const auto j0 = static_cast<unsigned>(task / rows % columns) * edge;
      const auto group = static_cast<unsigned>(task / rows / columns % groups);
      const auto part = static_cast<unsigned>(task / rows / columns / groups);
      const auto begin = static_cast<unsigned>(std::size_t{k} * part / parts);
      const auto end = static_cast<unsigned>(std::size_t{k} * (part + 1) / parts);
      float sums[own][own] = {};
      for (auto k0 = begin; k0 < end; k0 += depth) {
        load_tiles(t, tiles, group, i0, j0, k0, end);
        t.barrier();
        for (unsigned p = 0; p < depth; ++p) {
          float a[own];
          float b[own];
          for (unsigned r = 0; r < own; ++r) {
            a[r] = tiles.load(p * a_row + ty + r * along);
            b[r] = tiles.load(depth * a_row + p * edge + tx + r * along);
          }
          for (unsigned r = 0; r < own; ++r)
            for (unsigned s = 0; s < own; ++s)
              sums[r][s] = std::fma(a[r], b[s], sums[r][s]);
        }
        t.barrier();
      }
      // The results go through shared memory, so that neighbouring elements are written together.
      for (unsigned r = 0; r < own; ++r)
        for (unsigned s = 0; s < own; ++s)
          tiles.store((ty + r * along) * edge + tx + s * along, sums[r][s]);
      t.barrier();
      for (unsigned x = t.index(); x < edge * edge; x += block_threads)
        if (i0 + x / edge < m && j0 + x % edge < n)
          problem.store(group, part, i0 + x / edge, j0 + x % edge, tiles.load(x));
      t.barrier();
    }
  }
};

/// How a result of a convolution leaves the registers.
template <class Out>
struct output {
  view<const float> bias; // per channel; may be null
  /// The operand of the epilogue may have another type than the product.
  using operand_view =
    std::conditional_t<std::is_same_v<Out, view<float>>, view<const float>, mixed_view>;
  operand_view operand;
  Out out;
  operation after;

  TROUPE_DEVICE void store(std::size_t i, unsigned channel, float y) const {
    if (bias.data != nullptr)
      y += bias.load(channel);
    if (after != operation::end)
      y = apply(after, y, operand.data != nullptr ? operand.load(i) : y, y, 1);
    out.store(i, y);
  }
};

/// (filters, patch) times (patch, images and positions).
template <class In, class Out>
struct forward_problem {
  geometry size;
  In x, w;
  output<Out> y;

  TROUPE_DEVICE float a(unsigned group, unsigned i, unsigned k) const {
    const auto patch = size.group_channels() * size.window();
    return w.load((std::size_t{group} * size.group_filters() + i) * patch + k);
  }
  TROUPE_DEVICE float b(unsigned group, unsigned k, unsigned j) const {
    return size.patch(x, group, j / size.positions(), j % size.positions(), k);
  }
  TROUPE_DEVICE void store(unsigned group, unsigned, unsigned i, unsigned j, float sum) const {
    const auto f = group * size.group_filters() + i;
    y.store(size.at_result(j / size.positions(), f) + j % size.positions(), f, sum);
  }
};

/// (channels, filters and window) times (filters and window, images and pixels).
template <class In, class Out>
struct input_gradient_problem {
  geometry size;
  In dy, w;
  output<Out> dx;

  TROUPE_DEVICE float a(unsigned group, unsigned i, unsigned k) const {
    const auto f = group * size.group_filters() + k / size.window();
    return w.load((std::size_t{f} * size.group_channels() + i) * size.window() + k % size.window());
  }
  /// The result whose window has this pixel at (u, v), if there is one.
  TROUPE_DEVICE float b(unsigned group, unsigned k, unsigned j) const {
    const auto pixels = size.height * size.width;
    const auto inside = k % size.window();
    const int y = static_cast<int>(j % pixels / size.width) + size.pad_y
      - static_cast<int>(inside / size.window_width) * size.dilation_y;
    const int z = static_cast<int>(j % pixels % size.width) + size.pad_x
      - static_cast<int>(inside % size.window_width) * size.dilation_x;
    if (y < 0 || z < 0 || y % size.stride_y != 0 || z % size.stride_x != 0)
      return 0;
    const auto row = static_cast<unsigned>(y / size.stride_y);
    const auto column = static_cast<unsigned>(z / size.stride_x);
    if (row >= size.out_height || column >= size.out_width)
      return 0;
    const auto f = group * size.group_filters() + k / size.window();
    return dy.load(size.at_result(j / pixels, f) + row * size.out_width + column);
  }
  TROUPE_DEVICE void store(unsigned group, unsigned, unsigned i, unsigned j, float sum) const {
    const auto pixels = size.height * size.width;
    const auto c = group * size.group_channels() + i;
    dx.store(size.at_image(j / pixels, c) + j % pixels, c, sum);
  }
};

/// (filters, images and positions) times (images and positions, patch), in parts.
template <class In>
struct weight_gradient_problem {
  geometry size;
  In x, dy;
  view<double> partial; // (parts, filters, patch)

  TROUPE_DEVICE float a(unsigned group, unsigned i, unsigned k) const {
    const auto f = group * size.group_filters() + i;
    return dy.load(size.at_result(k / size.positions(), f) + k % size.positions());
  }
  TROUPE_DEVICE float b(unsigned group, unsigned k, unsigned j) const {
    return size.patch(x, group, k / size.positions(), k % size.positions(), j);
  }
  TROUPE_DEVICE void store(unsigned group, unsigned part, unsigned i, unsigned j, float sum) const {
    const auto patch = size.group_channels() * size.window();
    const auto f = group * size.group_filters() + i;
    partial.store((std::size_t{part} * size.filters + f) * patch + j, static_cast<double>(sum));
  }
};

geometry geometry_of(const images& in, const images& out, const window& how) {
  const auto number = [](auto x) { return static_cast<unsigned>(x); };
  const auto step = [](std::int64_t x) { return static_cast<int>(x); };
  return {number(in.count),     number(in.channels), number(in.height),    number(in.width),
          number(out.channels), number(out.height),  number(out.width),    number(how.height),
          number(how.width),    number(how.groups),  step(how.stride_y),   step(how.stride_x),
          step(how.pad_y),      step(how.pad_x),     step(how.dilation_y), step(how.dilation_x)};
}

std::size_t weights_of(const images& in, const images& out, const window& how) {
  return out.channels * in.channels / static_cast<std::size_t>(how.groups)
    * static_cast<std::size_t>(how.height * how.width);
}

std::size_t tiles_of(std::size_t m, std::size_t n) {
  return (m + edge - 1) / edge * ((n + edge - 1) / edge);
}

template <class Problem>
void launch_product(stream where, const char* name, const Problem& problem, std::size_t m,
                    std::size_t n, std::size_t k, std::size_t parts) {
  const auto groups = problem.size.groups;
  const auto number = [](std::size_t x) { return static_cast<unsigned>(x); };
  launch(
    where, name, {blocks_for(tiles_of(m, n) * groups * parts, 1), tile_elements * sizeof(float)},
    implicit_product<Problem>{problem, number(m), number(n), number(k), groups, number(parts)});
}

output<view<float>> output_of(const float* bias, std::size_t channels, ending last,
                              view<float> out) {
  if (is_narrow(last.type))
    throw std::invalid_argument("conv2d: the operand of the epilogue is not float32");
  return {{bias, channels}, {static_cast<const float*>(last.operand), out.size}, out, last.after};
}
template <class Out>
output<Out> output_of(const float* bias, std::size_t channels, ending last, Out out) {
  return {{bias, channels}, {last.operand, out.size, last.type}, out, last.after};
}

} // namespace

void conv2d(stream where, const images& in, const images& out, const window& how, mixed_input x,
            mixed_input w, const float* bias, ending last, mixed_output y) {
  const auto size = geometry_of(in, out, how);
  const auto n = out.count * out.per_image();
  with_views(
    y, n,
    [&](auto to, auto from, auto weights) {
      launch_product(where, "conv2d",
                     forward_problem<decltype(from), decltype(to)>{
                       size, from, weights, output_of(bias, out.channels, last, to)},
                     out.channels / size.groups, out.count * out.pixels(),
                     weights_of(in, out, how) / out.channels, 1);
    },
    read_elements{x, in.count * in.per_image()}, read_elements{w, weights_of(in, out, how)});
}

void conv2d_input_gradient(stream where, const images& in, const images& out, const window& how,
                           mixed_input dy, mixed_input w, const float* bias, ending last,
                           mixed_output dx) {
  const auto size = geometry_of(in, out, how);
  const auto n = in.count * in.per_image();
  with_views(
    dx, n,
    [&](auto to, auto gradient, auto weights) {
      launch_product(where, "conv2d_input_gradient",
                     input_gradient_problem<decltype(gradient), decltype(to)>{
                       size, gradient, weights, output_of(bias, in.channels, last, to)},
                     in.channels / size.groups, in.count * in.pixels(),
                     weights_of(in, out, how) / (in.channels / size.groups) / size.groups, 1);
    },
    read_elements{dy, out.count * out.per_image()}, read_elements{w, weights_of(in, out, how)});
}

std::size_t weight_gradient_parts(const images& in, const images& out, const window& how) noexcept {
  // Enough blocks to fill a large device, with at least 256 terms each.
  const auto groups = static_cast<std::size_t>(how.groups);
  const auto tiles =
    groups * tiles_of(out.channels / groups, weights_of(in, out, how) / out.channels);
  const auto most = std::max<std::size_t>(512 / std::max<std::size_t>(tiles, 1), 1);
  return std::clamp<std::size_t>(out.count * out.pixels() / 256, 1, most);
}

void conv2d_weight_gradient(stream where, const images& in, const images& out, const window& how,
                            mixed_input x, mixed_input dy, double* space, float* dw) {
  const auto size = geometry_of(in, out, how);
  const auto weights = weights_of(in, out, how);
  const auto parts = weight_gradient_parts(in, out, how);
  with_views(
    mixed_output{nullptr, x.type}, 0,
    [&](auto, auto from, auto gradient) {
      launch_product(
        where, "conv2d_weight_gradient",
        weight_gradient_problem<decltype(from)>{size, from, gradient, {space, parts * weights}},
        out.channels / size.groups, weights / out.channels, out.count * out.pixels(), parts);
    },
    read_elements{x, in.count * in.per_image()}, read_elements{dy, out.count * out.per_image()});
  add_parts(where, parts, weights, space, dw);
}

} // namespace troupe::cuda
