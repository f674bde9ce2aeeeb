#include "kernels/cpu/convolution.hpp"

#include "kernels/cpu/direct_convolution.hpp"
#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/sums.hpp"
#include "kernels/cpu/vectorize.hpp"

#include <algorithm>

namespace troupe::cpu {

namespace {

/// The sizes of a convolution for one image and one group.
struct geometry {
  geometry(const images& in, const images& out, const window& how)
    : how(how), groups(static_cast<std::size_t>(how.groups)), channels(in.channels / groups),
      filters(out.channels / groups), height(in.height), width(in.width), rows(out.height),
      columns(out.width), positions(rows * columns),
      patch(channels * static_cast<std::size_t>(how.height * how.width)) {}

  window how;
  std::size_t groups;
  /// Number of channels and of filters in one group.
  std::size_t channels;
  std::size_t filters;
  std::size_t height, width;
  std::size_t rows, columns;
  std::size_t positions;
  /// Number of elements of the image under the window, in all channels of a group.
  std::size_t patch;
};

/// The positions [first, last) of the window along one axis at which a given element of the window
/// is inside the image. At position j of the window, this element is at j * stride + shift. It is
/// inside if this number is at least 0 and less than `extent`.
struct inside {
  inside(std::int64_t positions, std::int64_t stride, std::int64_t shift, std::int64_t extent)
    : first(shift < 0 ? std::min((-shift + stride - 1) / stride, positions) : 0),
      last(std::clamp((extent - shift + stride - 1) / stride, first, positions)) {}

  std::int64_t first;
  std::int64_t last;
};

/// Calls f(k, c, u, v) for each row k of the matrix of patches. Row k contains channel c of the
/// image under element (u, v) of the window.
template <class F>
void each_row(const geometry& g, F f) {
  const auto& how = g.how;
  std::size_t k = 0;
  for (std::size_t c = 0; c < g.channels; ++c)
    for (std::int64_t u = 0; u < how.height; ++u)
      for (std::int64_t v = 0; v < how.width; ++v)
        f(k++, c, u * how.dilation_y - how.pad_y, v * how.dilation_x - how.pad_x);
}

/// Writes the matrix of patches (patch, positions) of x (channels, height, width). Elements outside
/// the image are 0.
template <class T>
void gather_patches(const geometry& g, const T* x, T* patches) {
  each_row(g, [&](std::size_t k, std::size_t c, std::int64_t u, std::int64_t v) {
    T* row = patches + k * g.positions;
    const T* plane = x + c * g.height * g.width;
    const inside y(static_cast<std::int64_t>(g.rows), g.how.stride_y, u,
                   static_cast<std::int64_t>(g.height));
    const auto columns = static_cast<std::int64_t>(g.columns);
    const inside z(columns, g.how.stride_x, v, static_cast<std::int64_t>(g.width));
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(g.rows); ++i, row += g.columns) {
      if (i < y.first || i >= y.last) {
        std::fill_n(row, g.columns, T(0));
        continue;
      }
      const T* line = plane + (i * g.how.stride_y + u) * static_cast<std::int64_t>(g.width);
      std::fill_n(row, z.first, T(0));
      if (g.how.stride_x == 1)
        std::copy(line + z.first + v, line + z.last + v, row + z.first);
      else
        for (auto j = z.first; j < z.last; ++j)
          row[j] = line[j * g.how.stride_x + v];
      std::fill(row + z.last, row + columns, T(0));
    }
  });
}

/// The adjoint of gather_patches: adds each element of `patches` to the element of dx from which
/// gather_patches would copy it.
template <class T>
void scatter_patches(const geometry& g, const T* patches, T* dx) {
  each_row(g, [&](std::size_t k, std::size_t c, std::int64_t u, std::int64_t v) {
    const T* row = patches + k * g.positions;
    T* plane = dx + c * g.height * g.width;
    const inside y(static_cast<std::int64_t>(g.rows), g.how.stride_y, u,
                   static_cast<std::int64_t>(g.height));
    const inside z(static_cast<std::int64_t>(g.columns), g.how.stride_x, v,
                   static_cast<std::int64_t>(g.width));
    for (auto i = y.first; i < y.last; ++i) {
      const T* from = row + i * static_cast<std::int64_t>(g.columns);
      T* line = plane + (i * g.how.stride_y + u) * static_cast<std::int64_t>(g.width) + v;
      if (g.how.stride_x == 1) {
        TROUPE_INDEPENDENT
        for (auto j = z.first; j < z.last; ++j)
          line[j] += from[j];
      } else {
        for (auto j = z.first; j < z.last; ++j)
          line[j * g.how.stride_x] += from[j];
      }
    }
  });
}

/// True if the window is a single element that moves by 1. Then the matrix of patches is the image
/// itself.
bool is_pointwise(const window& how) {
  return how == window{.groups = how.groups};
}

template <class T>
matrix<T> rows_of(const T* data, std::size_t columns) {
  return {data, columns, 1};
}

/// Calls f(image, group) for all groups of the images `part`.
template <class F>
void each_group(range part, const geometry& g, F f) {
  for (auto n = part.begin; n < part.end; ++n)
    for (std::size_t group = 0; group < g.groups; ++group)
      f(n, group);
}

template <class T>
void finish_image(const images& size, std::size_t n, const finish<T>& last, T* y) {
  T* const image = y + n * size.per_image();
  add_row_bias(size.channels, size.pixels(), image, last.bias, last.after,
               last.operand != nullptr ? last.operand + n * size.per_image() : nullptr, image);
}

} // namespace

template <class T>
std::size_t conv2d_scratch_elements(const images& x, const images& y, const window& how) {
  const geometry g(x, y, how);
  const auto patches = (g.patch * g.positions + 15) / 16 * 16;
  const auto product = gemm_scratch_elements<T>() + patches + g.filters * g.patch;
  return is_direct(x, how) ? std::max(product, direct_scratch_elements<T>(x, y, how)) : product;
}

template <class T>
void conv2d(const images& in, const images& out, const window& how, const T* x, const T* w,
            const finish<T>& last, T* y, T* scratch, range part) {
  if (is_direct(in, how))
    return direct_conv2d(in, out, how, x, w, last, y, scratch, part);
  const geometry g(in, out, how);
  T* const patches = scratch + gemm_scratch_elements<T>();
  each_group(part, g, [&](std::size_t n, std::size_t group) {
    const T* image = x + n * in.per_image() + group * g.channels * in.pixels();
    if (!is_pointwise(how))
      gather_patches(g, image, patches);
    gemm<T>(g.filters, g.positions, g.patch, rows_of(w + group * g.filters * g.patch, g.patch),
            rows_of(is_pointwise(how) ? image : patches, g.positions),
            y + n * out.per_image() + group * g.filters * g.positions, g.positions, scratch);
    if (group + 1 == g.groups)
      finish_image(out, n, last, y);
  });
}

template <class T>
void conv2d_input_gradient(const images& in, const images& out, const window& how, const T* dy,
                           const T* w, const finish<T>& last, T* dx, T* scratch, range part) {
  if (is_direct(in, how))
    return direct_input_gradient(in, out, how, dy, w, last, dx, scratch, part);
  const geometry g(in, out, how);
  T* const patches = scratch + gemm_scratch_elements<T>();
  std::fill_n(dx + part.begin * in.per_image(), part.size() * in.per_image(), T(0));
  each_group(part, g, [&](std::size_t n, std::size_t group) {
    T* image = dx + n * in.per_image() + group * g.channels * in.pixels();
    gemm<T>(g.patch, g.positions, g.filters,
            rows_of(w + group * g.filters * g.patch, g.patch).transposed(),
            rows_of(dy + n * out.per_image() + group * g.filters * g.positions, g.positions),
            is_pointwise(how) ? image : patches, g.positions, scratch);
    if (!is_pointwise(how))
      scatter_patches(g, patches, image);
    if (group + 1 == g.groups)
      finish_image(in, n, last, dx);
  });
}

template <class T>
void conv2d_weight_gradient(const images& in, const images& out, const window& how, const T* x,
                            const T* dy, T* dw, T* scratch, range part) {
  if (is_direct(in, how))
    return direct_weight_gradient(in, out, how, x, dy, dw, scratch, part);
  const geometry g(in, out, how);
  T* const patches = scratch + gemm_scratch_elements<T>();
  T* const one = patches + (g.patch * g.positions + 15) / 16 * 16;
  const auto width = part.size();
  for (std::size_t i = 0; i < g.groups * g.filters; ++i)
    std::fill_n(dw + i * g.patch + part.begin, width, T(0));
  each_group({0, in.count}, g, [&](std::size_t n, std::size_t group) {
    const T* image = x + n * in.per_image() + group * g.channels * in.pixels();
    if (!is_pointwise(how))
      gather_patches(g, image, patches);
    const T* rows = (is_pointwise(how) ? image : patches) + part.begin * g.positions;
    gemm<T>(g.filters, width, g.positions,
            rows_of(dy + n * out.per_image() + group * g.filters * g.positions, g.positions),
            rows_of(rows, g.positions).transposed(), one, width, scratch);
    for (std::size_t f = 0; f < g.filters; ++f) {
      T* const sum = dw + (group * g.filters + f) * g.patch + part.begin;
      loop_of<T>(operation::add)(width, sum, one + f * width, nullptr, T(1), sum);
    }
  });
}

template <class T>
void add_channel_bias(const images& size, const T* x, const T* b, T* out) {
  for (std::size_t n = 0; n < size.count; ++n)
    add_row_bias<T>(size.channels, size.pixels(), x + n * size.per_image(), b, std::nullopt,
                    nullptr, out + n * size.per_image());
}

template <class T>
void sum_channels(const images& size, const T* x, T* out, range part) {
  for (auto c = part.begin; c < part.end; ++c) {
    double total = 0;
    for (std::size_t n = 0; n < size.count; ++n)
      total += sum_of(size.pixels(), x + n * size.per_image() + c * size.pixels());
    out[c] = static_cast<T>(total);
  }
}

template <class T>
void broadcast_channels(const images& size, const T* x, T* out) {
  for (std::size_t i = 0; i < size.count * size.channels; ++i)
    std::fill_n(out + i * size.pixels(), size.pixels(), x[i % size.channels]);
}

#define TROUPE_INSTANTIATE(T)                                                                      \
  template std::size_t conv2d_scratch_elements<T>(const images&, const images&, const window&);    \
  template void conv2d(const images&, const images&, const window&, const T*, const T*,            \
                       const finish<T>&, T*, T*, range);                                           \
  template void conv2d_input_gradient(const images&, const images&, const window&, const T*,       \
                                      const T*, const finish<T>&, T*, T*, range);                  \
  template void conv2d_weight_gradient(const images&, const images&, const window&, const T*,      \
                                       const T*, T*, T*, range);                                   \
  template void add_channel_bias(const images&, const T*, const T*, T*);                           \
  template void sum_channels(const images&, const T*, T*, range);                                  \
  template void broadcast_channels(const images&, const T*, T*);

TROUPE_INSTANTIATE(float)
TROUPE_INSTANTIATE(double)
#undef TROUPE_INSTANTIATE

} // namespace troupe::cpu
