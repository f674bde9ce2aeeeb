#pragma once

#include "kernels/cpu/convolution.hpp"
#include "kernels/cuda/divider.hpp"
#include "kernels/cuda/element.hpp"
#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed_view.hpp"

#include <cstddef>
#include <type_traits>

// Convolutions as products of matrices: c (m, n) = a (m, k) b (k, n) for each group. A "problem"
// says where the elements of a, b and c are in the images (kernels/cuda/convolution.hpp). The
// position of an element of b is computed in two halves: one from its row, one from its column. A
// thread that loads several elements of the same row or column computes this half only once.

namespace troupe::cuda {

/// Sizes of a convolution.
struct convolution_sizes {
  unsigned channels, height, width;        // images
  unsigned filters, out_height, out_width; // result
  unsigned window_size, groups;            // elements of a window in a channel
  int stride_y, stride_x, pad_y, pad_x, dilation_y, dilation_x;
  divider by_window, by_window_width, by_pixels, by_width, by_positions, by_out_width, by_stride_y,
    by_stride_x;

  convolution_sizes(const cpu::images& in, const cpu::images& out, const window& how)
    : channels(number(in.channels)), height(number(in.height)), width(number(in.width)),
      filters(number(out.channels)), out_height(number(out.height)), out_width(number(out.width)),
      window_size(number(how.height * how.width)), groups(number(how.groups)),
      stride_y(static_cast<int>(how.stride_y)), stride_x(static_cast<int>(how.stride_x)),
      pad_y(static_cast<int>(how.pad_y)), pad_x(static_cast<int>(how.pad_x)),
      dilation_y(static_cast<int>(how.dilation_y)), dilation_x(static_cast<int>(how.dilation_x)) {
    const auto pixels = in.pixels();
    const auto positions = out.pixels();
    const auto all_windows = std::size_t{window_size} * (in.channels + out.channels);
    by_window = {window_size, all_windows};
    by_window_width = {static_cast<std::size_t>(how.width), window_size};
    by_pixels = {pixels, in.count * pixels};
    by_width = {in.width, pixels};
    by_positions = {positions, out.count * positions};
    by_out_width = {out.width, positions};
    // The dividends are rows and columns of the padded image, see input_gradient_problem::b.
    by_stride_y = {static_cast<std::size_t>(how.stride_y),
                   in.height + static_cast<std::size_t>(how.pad_y)};
    by_stride_x = {static_cast<std::size_t>(how.stride_x),
                   in.width + static_cast<std::size_t>(how.pad_x)};
  }

  TROUPE_DEVICE unsigned group_channels() const { return channels / groups; }
  TROUPE_DEVICE unsigned group_filters() const { return filters / groups; }
  TROUPE_DEVICE std::size_t at_image(unsigned n, unsigned c) const {
    return (std::size_t{n} * channels + c) * height * width;
  }
  TROUPE_DEVICE std::size_t at_result(unsigned n, unsigned f) const {
    return (std::size_t{n} * filters + f) * out_height * out_width;
  }

  /// A pixel, or the first pixel of a patch (the pixels under a window). It may be in the padding.
  struct place {
    unsigned image;
    int y, x;
  };
  /// An element of the window: its channel or filter within the group, and its distance from the
  /// first pixel of the window, in rows (y) and columns (x).
  struct element {
    unsigned channel;
    int y, x;
  };

  /// The first pixel of the patch at position i. Positions are counted over all result images.
  TROUPE_DEVICE place patch_at(unsigned i) const {
    const auto image = by_positions(i);
    const auto row = by_out_width(image.rest);
    return {static_cast<unsigned>(image.quotient),
            static_cast<int>(row.quotient) * stride_y - pad_y,
            static_cast<int>(row.rest) * stride_x - pad_x};
  }
  /// Pixel i. Pixels are counted over all images. The coordinates start at the edge of the padding.
  TROUPE_DEVICE place pixel_at(unsigned i) const {
    const auto image = by_pixels(i);
    const auto row = by_width(image.rest);
    return {static_cast<unsigned>(image.quotient), static_cast<int>(row.quotient) + pad_y,
            static_cast<int>(row.rest) + pad_x};
  }
  TROUPE_DEVICE element element_at(unsigned i) const {
    const auto channel = by_window(i);
    const auto row = by_window_width(channel.rest);
    return {static_cast<unsigned>(channel.quotient), static_cast<int>(row.quotient) * dilation_y,
            static_cast<int>(row.rest) * dilation_x};
  }

  /// The pixel of a patch under element e of the window; 0 if it is outside the image.
  template <class T>
  TROUPE_DEVICE std::remove_const_t<T> patch_element(const view<T>& images, unsigned group,
                                                     const place& patch, const element& e) const {
    const auto y = static_cast<unsigned>(patch.y + e.y); // large if it is negative
    const auto x = static_cast<unsigned>(patch.x + e.x);
    if (y >= height || x >= width)
      return {};
    return images.load(at_image(patch.image, group * group_channels() + e.channel)
                       + std::size_t{y} * width + x);
  }

private:
  template <class T>
  static unsigned number(T x) {
    return static_cast<unsigned>(x);
  }
};

/// Writes a result of a convolution: adds the bias, applies the epilogue, and stores the element.
template <class Out>
struct convolution_output {
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

/// The convolution itself: a is the weights (filters, patch), and b is image elements (patch,
/// images * positions).
template <class T, class Out>
struct forward_problem {
  using type = T;
  using row = convolution_sizes::element;
  using column = convolution_sizes::place;
  /// True if neighbours in memory are in the same column of b, false if they are in the same row.
  static constexpr bool runs_down = false;
  convolution_sizes size;
  view<const T> x, w;
  convolution_output<Out> y;

  TROUPE_DEVICE T a(unsigned group, unsigned i, unsigned k) const {
    const auto patch = size.group_channels() * size.window_size;
    return w.load((std::size_t{group} * size.group_filters() + i) * patch + k);
  }
  TROUPE_DEVICE row row_at(unsigned k) const { return size.element_at(k); }
  TROUPE_DEVICE column column_at(unsigned j) const { return size.patch_at(j); }
  TROUPE_DEVICE T b(unsigned group, const row& k, const column& j) const {
    return size.patch_element(x, group, j, k);
  }
  TROUPE_DEVICE void store(unsigned group, unsigned, unsigned i, unsigned j, float sum) const {
    const auto f = group * size.group_filters() + i;
    const auto image = size.by_positions(j);
    y.store(size.at_result(static_cast<unsigned>(image.quotient), f) + image.rest, f, sum);
  }
};

/// The gradient of the images: a is the weights (channels, filters * window), and b is elements of
/// dy (filters * window, images * pixels).
template <class T, class Out>
struct input_gradient_problem {
  using type = T;
  using row = convolution_sizes::element;
  using column = convolution_sizes::place;
  static constexpr bool runs_down = false;
  convolution_sizes size;
  view<const T> dy, w;
  convolution_output<Out> dx;

  TROUPE_DEVICE T a(unsigned group, unsigned i, unsigned k) const {
    const auto filter = size.by_window(k);
    const auto f = group * std::size_t{size.group_filters()} + filter.quotient;
    return w.load((f * size.group_channels() + i) * size.window_size + filter.rest);
  }
  TROUPE_DEVICE row row_at(unsigned k) const { return size.element_at(k); }
  TROUPE_DEVICE column column_at(unsigned j) const { return size.pixel_at(j); }
  /// The element of dy at the position whose patch has pixel j under window element k; 0 if there
  /// is no such position.
  TROUPE_DEVICE T b(unsigned group, const row& k, const column& j) const {
    const int y = j.y - k.y;
    const int x = j.x - k.x;
    if (y < 0 || x < 0)
      return {};
    const auto down = size.by_stride_y(static_cast<unsigned>(y));
    const auto right = size.by_stride_x(static_cast<unsigned>(x));
    if (down.rest != 0 || right.rest != 0 || down.quotient >= size.out_height
        || right.quotient >= size.out_width)
      return {};
    return dy.load(size.at_result(j.image, group * size.group_filters() + k.channel)
                   + down.quotient * size.out_width + right.quotient);
  }
  TROUPE_DEVICE void store(unsigned group, unsigned, unsigned i, unsigned j, float sum) const {
    const auto c = group * size.group_channels() + i;
    const auto image = size.by_pixels(j);
    dx.store(size.at_image(static_cast<unsigned>(image.quotient), c) + image.rest, c, sum);
  }
};

/// The gradient of the weights: a is dy (filters, images * positions), and b is image elements
/// (images * positions, patch). The sum over images * positions is divided into parts.
template <class T>
struct weight_gradient_problem {
  using type = T;
  using row = convolution_sizes::place;
  using column = convolution_sizes::element;
  static constexpr bool runs_down = true;
  convolution_sizes size;
  view<const T> x, dy;
  view<double> partial; // (parts, filters, patch)

  TROUPE_DEVICE T a(unsigned group, unsigned i, unsigned k) const {
    const auto image = size.by_positions(k);
    return dy.load(
      size.at_result(static_cast<unsigned>(image.quotient), group * size.group_filters() + i)
      + image.rest);
  }
  TROUPE_DEVICE row row_at(unsigned k) const { return size.patch_at(k); }
  TROUPE_DEVICE column column_at(unsigned j) const { return size.element_at(j); }
  TROUPE_DEVICE T b(unsigned group, const row& k, const column& j) const {
    return size.patch_element(x, group, k, j);
  }
  TROUPE_DEVICE void store(unsigned group, unsigned part, unsigned i, unsigned j, float sum) const {
    const auto patch = size.group_channels() * size.window_size;
    const auto f = group * size.group_filters() + i;
    partial.store((std::size_t{part} * size.filters + f) * patch + j, static_cast<double>(sum));
  }
};

} // namespace troupe::cuda
