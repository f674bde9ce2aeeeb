#include "kernels/cpu/direct_convolution.hpp"

#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/vectorize.hpp"

#include <algorithm>
#include <utility>

namespace troupe::cpu {

namespace {

constexpr std::size_t round_up(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit * unit;
}

/// The sizes of a correlation of one group of one image. Its inputs are an image (channels, height,
/// width), surrounded by zeros, and filters (filters, channels, kernel_height, kernel_width). The
/// result is (filters, rows, columns).
struct correlation {
  std::size_t channels, height, width;
  std::size_t filters, rows, columns;
  std::size_t kernel_height, kernel_width;
  std::size_t pad_y, pad_x;

  std::size_t patch() const { return channels * kernel_height * kernel_width; }
  std::size_t positions() const { return rows * columns; }
  /// Number of elements of a line, and of a channel, of the padded image. `rows` and `columns` are
  /// the sizes of the result.
  std::size_t line() const { return columns + kernel_width - 1; }
  std::size_t plane() const { return (rows + kernel_height - 1) * line(); }
  /// Number of results per filter, including useless results, which narrow() removes. These are the
  /// last kernel_width - 1 results of each line except the last line. They belong to positions
  /// where the window crosses the right edge (direct_convolution.hpp). The number is rounded up to
  /// a multiple of gemm_columns, as gemm_at() requires. narrow() also removes the results that this
  /// adds.
  std::size_t wide_positions() const {
    return round_up(rows * line() - (kernel_width - 1), gemm_columns);
  }

  // Sizes of the parts of the scratch space, in elements.
  std::size_t padded_elements() const {
    return round_up(channels * plane() + wide_positions(), 16);
  }
  std::size_t result_elements() const { return filters * wide_positions(); }
  template <class T>
  std::size_t offset_elements() const {
    return round_up(patch() * sizeof(std::size_t) / sizeof(T) + 1, 16);
  }

  /// Writes the offsets of gemm_at(): where each row of the matrix of patches begins in the padded
  /// image.
  void write_offsets(std::size_t* out) const {
    for (std::size_t c = 0; c < channels; ++c)
      for (std::size_t u = 0; u < kernel_height; ++u)
        for (std::size_t v = 0; v < kernel_width; ++v)
          *out++ = c * plane() + u * line() + v;
  }

  /// Copies an image into the padded image `out`. The elements around the image must be 0 already.
  template <class T>
  void pad(const T* x, T* out) const {
    for (std::size_t c = 0; c < channels; ++c)
      for (std::size_t i = 0; i < height; ++i) {
        T* to = out + c * plane() + (i + pad_y) * line() + pad_x;
        TROUPE_INDEPENDENT
        for (std::size_t j = 0; j < width; ++j)
          to[j] = x[j];
        x += width;
      }
  }

  /// Copies the results, and leaves out the useless results at the end of each line.
  template <class T>
  void narrow(const T* wide, T* out) const {
    for (std::size_t f = 0; f < filters; ++f)
      for (std::size_t i = 0; i < rows; ++i) {
        const T* from = wide + f * wide_positions() + i * line();
        TROUPE_INDEPENDENT
        for (std::size_t j = 0; j < columns; ++j)
          out[j] = from[j];
        out += columns;
      }
  }
};

std::size_t size(std::int64_t x) {
  return static_cast<std::size_t>(x);
}

correlation forward(const images& in, const images& out, const window& how) {
  const auto groups = size(how.groups);
  return {in.channels / groups, in.height,      in.width,         out.channels / groups,
          out.height,           out.width,      size(how.height), size(how.width),
          size(how.pad_y),      size(how.pad_x)};
}

/// The correlation that computes the gradient of the input. It correlates dy with the filters,
/// which are rotated by 180 degrees.
correlation backward(const images& in, const images& out, const window& how) {
  const auto groups = size(how.groups);
  return {out.channels / groups,
          out.height,
          out.width,
          in.channels / groups,
          in.height,
          in.width,
          size(how.height),
          size(how.width),
          size(how.height - 1 - how.pad_y),
          size(how.width - 1 - how.pad_x)};
}

template <class T>
std::size_t correlate_elements(const correlation& c) {
  return c.padded_elements() + c.result_elements() + c.template offset_elements<T>();
}

/// Takes arrays from the scratch space, one after the other.
template <class T>
class pieces {
public:
  explicit pieces(T* next) : next_(next) {}

  T* take(std::size_t n) { return std::exchange(next_, next_ + round_up(n, 16)); }
  std::size_t* take_offsets(const correlation& c) {
    auto* result = new (take(c.template offset_elements<T>())) std::size_t[c.patch()];
    c.write_offsets(result);
    return result;
  }

private:
  T* next_;
};

/// Computes y (images, groups, filters, ...) from x (images, groups, channels, ...), for the images
/// `part`.
template <class T>
void correlate(const correlation& c, std::size_t groups, const T* x, const T* w,
               const finish<T>& last, T* y, pieces<T> space, range part) {
  const auto per_group = c.filters * c.positions();
  const auto per_image = groups * per_group;
  const auto source = c.channels * c.height * c.width;
  T* const padded = space.take(c.padded_elements());
  T* const wide = space.take(c.result_elements());
  const auto* offsets = space.take_offsets(c);
  std::fill_n(padded, c.padded_elements(), T(0));
  for (auto n = part.begin; n < part.end; ++n) {
    T* const image = y + n * per_image;
    for (std::size_t g = 0; g < groups; ++g) {
      c.pad(x + (n * groups + g) * source, padded);
      gemm_at<T>(c.filters, c.wide_positions(), c.patch(), w + g * c.filters * c.patch(), padded,
                 offsets, wide, c.wide_positions());
      c.narrow(wide, image + g * per_group);
    }
    add_row_bias(groups * c.filters, c.positions(), image, last.bias, last.after,
                 last.operand != nullptr ? last.operand + n * per_image : nullptr, image);
  }
}

} // namespace

bool is_direct(const images& in, const window& how) {
  return how.stride_y == 1 && how.stride_x == 1 && how.dilation_y == 1 && how.dilation_x == 1
    && how.pad_y < how.height && how.pad_x < how.width && (how.height > 1 || how.width > 1)
    && in.pixels() > 0;
}

template <class T>
std::size_t direct_scratch_elements(const images& in, const images& out, const window& how) {
  const auto c = forward(in, out, how);
  const auto b = backward(in, out, how);
  const auto weights = size(how.groups) * b.patch() * b.filters;
  const auto gradient = packed_elements<T>(c.positions(), c.filters)
    + 2 * c.patch() * round_up(c.filters, gemm_columns) + 48;
  return std::max({correlate_elements<T>(c), correlate_elements<T>(b) + round_up(weights, 16),
                   correlate_elements<T>(c) + gradient})
    + 64;
}

template <class T>
void direct_conv2d(const images& in, const images& out, const window& how, const T* x, const T* w,
                   const finish<T>& last, T* y, T* scratch, range part) {
  correlate<T>(forward(in, out, how), size(how.groups), x, w, last, y, pieces<T>(scratch), part);
}

template <class T>
void direct_input_gradient(const images& in, const images& out, const window& how, const T* dy,
                           const T* w, const finish<T>& last, T* dx, T* scratch, range part) {
  const auto c = backward(in, out, how);
  const auto groups = size(how.groups);
  const auto kernel = c.kernel_height * c.kernel_width;
  pieces<T> space(scratch);
  T* const turned = space.take(groups * c.patch() * c.filters);
  // w is (groups, filters, channels, kernel). In the correlation for the gradient, the filters and
  // the channels of the convolution change places.
  for (std::size_t g = 0; g < groups; ++g)
    for (std::size_t o = 0; o < c.channels; ++o)
      for (std::size_t i = 0; i < c.filters; ++i) {
        const T* from = w + ((g * c.channels + o) * c.filters + i) * kernel;
        T* to = turned + ((g * c.filters + i) * c.channels + o) * kernel;
        std::reverse_copy(from, from + kernel, to);
      }
  correlate<T>(c, groups, dy, turned, last, dx, space, part);
}

template <class T>
void direct_weight_gradient(const images& in, const images& out, const window& how, const T* x,
                            const T* dy, T* dw, T* scratch, range part) {
  const auto c = forward(in, out, how);
  const auto groups = size(how.groups);
  const auto stride = round_up(c.filters, gemm_columns);
  pieces<T> space(scratch);
  T* const padded = space.take(c.padded_elements());
  const auto* offsets = space.take_offsets(c);
  T* const panels = space.take(packed_elements<T>(c.positions(), c.filters));
  // total: the sums over all images. one: the sums over one image. Each is (part, filters).
  T* const total = space.take(part.size() * stride);
  T* const one = space.take(part.size() * stride);
  std::fill_n(padded, c.padded_elements(), T(0));
  for (std::size_t g = 0; g < groups; ++g) {
    std::fill_n(total, part.size() * stride, T(0));
    for (std::size_t n = 0; n < in.count; ++n) {
      c.pad(x + (n * groups + g) * c.channels * c.height * c.width, padded);
      pack<T>(c.positions(), c.filters,
              {dy + (n * groups + g) * c.filters * c.positions(), 1, c.positions()}, panels);
      std::fill_n(one, part.size() * stride, T(0));
      gemm_lines<T>(part.size(), c.filters, c.rows, c.columns, padded, offsets + part.begin,
                    c.line(), panels, one, stride);
      loop_of<T>(operation::add)(part.size() * stride, total, one, nullptr, T(1), total);
    }
    for (std::size_t f = 0; f < c.filters; ++f) {
      T* to = dw + (g * c.filters + f) * c.patch();
      for (std::size_t i = 0; i < part.size(); ++i)
        to[part.begin + i] = total[i * stride + f];
    }
  }
}

#define TROUPE_INSTANTIATE(T)                                                                      \
  template std::size_t direct_scratch_elements<T>(const images&, const images&, const window&);    \
  template void direct_conv2d(const images&, const images&, const window&, const T*, const T*,     \
                              const finish<T>&, T*, T*, range);                                    \
  template void direct_input_gradient(const images&, const images&, const window&, const T*,       \
                                      const T*, const finish<T>&, T*, T*, range);                  \
  template void direct_weight_gradient(const images&, const images&, const window&, const T*,      \
                                       const T*, T*, T*, range);

TROUPE_INSTANTIATE(float)
TROUPE_INSTANTIATE(double)
#undef TROUPE_INSTANTIATE

} // namespace troupe::cpu
