#pragma once

#include "kernels/cpu/convolution.hpp"
#include "kernels/cuda/divider.hpp"
#include "kernels/cuda/element.hpp"
#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed_view.hpp"

#include <cstddef>
#include <type_traits>

// Convolutions as products of matrices: c (m, n) = a (m, k) b (k, n) for each group. A "problem" is
// a class that finds the elements of a, b and c in the images and weights
// (kernels/cuda/convolution.hpp).
//
// An element of b has two indices: the number of a place, and the number of a window element. A
// place is a position of the window, or a pixel. The numbers of places continue from one image to
// the next. The position of the element in memory is the sum of two halves, one for each index.
// Computing a half takes divisions, but adding two halves takes none. So each half is computed once
// and used for many elements.

namespace troupe::cuda {

/// One half of the position of an element of the matrix b. The offset of the element in memory is
/// the sum of the offsets of its two halves. Its coordinates y and x in the image are such sums,
/// too. The numbers of a half may be negative, so sums are computed modulo 2^32. `phase` is for
/// input gradients: it contains the remainders of divisions by the strides. If the phases of the
/// two halves differ, the element of b is 0.
struct alignas(16) half_position {
  unsigned offset, y, x, phase;
};

/// no_element replaces the half of a window element that is outside the matrix b. no_place is the
/// phase of a half whose place is outside b. Both phases differ from all other phases, so that the
/// loaded element is 0.
inline constexpr half_position no_element{0, 0, 0, ~0U};
inline constexpr unsigned no_place = ~0U - 1;

/// The half of a position that belongs to a place (a position of the window, or a pixel), and the
/// image of this place. `image` begins at the first channel of the group.
template <class T>
struct place {
  view<const T> image;
  half_position at;

  TROUPE_DEVICE place(const view<const T>& images, std::size_t begin, const half_position& half)
    : image{images.data + begin, images.size - begin}, at(half) {
#ifdef __CUDACC__
    // Without this, the compiler adds 64-bit numbers for each element instead of keeping the
    // address.
    asm("" : "+l"(image.data));
    __builtin_assume(__isGlobal(image.data));
#endif
  }
  place() = default;

  /// Loads the element with the halves `at` and `e`. Returns 0 if the element is outside the image,
  /// or if the phases differ.
  TROUPE_DEVICE T load(const half_position& e, unsigned height, unsigned width) const {
    // The sums are unsigned, so a negative coordinate is a large number.
    const bool inside = (e.phase == at.phase) & (at.y + e.y < height) & (at.x + e.x < width);
    return inside ? image.load(at.offset + e.offset) : T{};
  }
};

/// Sizes of a convolution. All numbers are less than size_limit (size_limits.hpp).
struct convolution_sizes {
  unsigned channels, height, width;        // images
  unsigned filters, out_height, out_width; // result
  unsigned window_size, groups;            // elements of a window in a channel
  unsigned group_channels, group_filters;
  unsigned stride_y, stride_x, pad_y, pad_x, dilation_y, dilation_x;
  divider by_window, by_window_width, by_pixels, by_width, by_positions, by_out_width, by_stride_y,
    by_stride_x;

  convolution_sizes(const cpu::images& in, const cpu::images& out, const window& how)
    : channels(number(in.channels)), height(number(in.height)), width(number(in.width)),
      filters(number(out.channels)), out_height(number(out.height)), out_width(number(out.width)),
      window_size(number(how.height * how.width)), groups(number(how.groups)),
      group_channels(channels / groups), group_filters(filters / groups),
      stride_y(number(how.stride_y)), stride_x(number(how.stride_x)), pad_y(number(how.pad_y)),
      pad_x(number(how.pad_x)), dilation_y(number(how.dilation_y)),
      dilation_x(number(how.dilation_x)) {
    const auto pixels = in.pixels();
    const auto positions = out.pixels();
    const auto all_windows = std::size_t{window_size} * (in.channels + out.channels);
    by_window = {window_size, all_windows};
    by_window_width = {static_cast<std::size_t>(how.width), window_size};
    by_pixels = {pixels, in.count * pixels};
    by_width = {in.width, pixels};
    by_positions = {positions, out.count * positions};
    by_out_width = {out.width, positions};
    // by_stride_y divides rows of the padded image, and by_stride_x divides columns of it. The
    // second argument is the limit of these dividends.
    by_stride_y = {static_cast<std::size_t>(how.stride_y), in.height + 2 * std::size_t{pad_y}};
    by_stride_x = {static_cast<std::size_t>(how.stride_x), in.width + 2 * std::size_t{pad_x}};
  }

  TROUPE_DEVICE unsigned pixels() const { return height * width; }
  TROUPE_DEVICE unsigned positions() const { return out_height * out_width; }
  TROUPE_DEVICE std::size_t at_image(unsigned n, unsigned c) const {
    return (std::size_t{n} * channels + c) * pixels();
  }
  TROUPE_DEVICE std::size_t at_result(unsigned n, unsigned f) const {
    return (std::size_t{n} * filters + f) * positions();
  }

  struct divided {
    unsigned quotient, rest;
  };
  /// Divides numbers of 32 bits.
  static TROUPE_DEVICE divided divide(unsigned x, const divider& by) {
    const auto quotient = static_cast<unsigned>(by.quotient(x));
    return {quotient, x - quotient * static_cast<unsigned>(by.divisor())};
  }

  /// The position of element i of a window: its channel or filter within the group, and its
  /// distance from the first pixel of the window, in rows (y) and columns (x).
  struct window_element {
    unsigned channel, y, x;
  };
  TROUPE_DEVICE window_element element_at(unsigned i) const {
    const auto channel = divide(i, by_window);
    const auto row = divide(channel.rest, by_window_width);
    return {channel.quotient, row.quotient * dilation_y, row.rest * dilation_x};
  }

  /// A patch is the pixels under the window at one position. Positions are counted over all result
  /// images. patch_at() returns the place of patch number i; it contains the half_position of the
  /// first pixel of the patch. patch_element() returns the half_position of element i of the
  /// window.
  template <class T>
  TROUPE_DEVICE place<T> patch_at(const view<const T>& images, unsigned group, unsigned i) const {
    const auto image = divide(i, by_positions);
    const auto row = divide(image.rest, by_out_width);
    const auto y = row.quotient * stride_y - pad_y;
    const auto x = row.rest * stride_x - pad_x;
    const auto begin = at_image(image.quotient, group * group_channels);
    return {images, begin, {y * width + x, y, x, 0}};
  }
  TROUPE_DEVICE half_position patch_element(unsigned i) const {
    const auto e = element_at(i);
    return {e.channel * pixels() + e.y * width + e.x, e.y, e.x, 0};
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

/// The convolution itself. The matrix a has the weights (filters, patch), and the matrix b has
/// image elements (patch, images * positions).
template <class T, class Out>
struct forward_problem {
  using type = T;
  /// True if each row of the matrix b belongs to a place (a position of the window, or a pixel).
  /// Then neighbours in memory are in the same column of b. False if each column of b belongs to a
  /// place. Then neighbours in memory are in the same row of b.
  static constexpr bool runs_down = false;
  convolution_sizes size;
  view<const T> x, w;
  convolution_output<Out> y;

  TROUPE_DEVICE const view<const T>& left() const { return w; }
  /// left_at() returns the index, in left(), of element (0, k) of a. left_row() is the distance
  /// between neighbouring rows of a.
  TROUPE_DEVICE std::size_t left_at(unsigned group, unsigned k) const {
    return std::size_t{group} * size.group_filters * left_row() + k;
  }
  TROUPE_DEVICE std::size_t left_row() const { return size.group_channels * size.window_size; }
  TROUPE_DEVICE half_position element_at(unsigned k) const { return size.patch_element(k); }
  TROUPE_DEVICE place<T> place_at(unsigned group, unsigned j) const {
    return size.patch_at(x, group, j);
  }
  /// The sizes of the images of b.
  TROUPE_DEVICE unsigned height() const { return size.height; }
  TROUPE_DEVICE unsigned width() const { return size.width; }
  /// The index of the first element of column j of the result. store() adds the offset of `row`.
  /// Row numbers continue from one group to the next.
  TROUPE_DEVICE std::size_t result_at(unsigned, unsigned j) const {
    const auto image = size.divide(j, size.by_positions);
    return size.at_result(image.quotient, 0) + image.rest;
  }
  TROUPE_DEVICE void store(std::size_t column, unsigned row, float sum) const {
    y.store(column + std::size_t{row} * size.positions(), row, sum);
  }
};

/// The gradient of the images. The matrix a has the weights (channels, filters * window), and the
/// matrix b has elements of dy (filters * window, images * pixels). Each index k stands for a
/// filter and a window element. Element (k, j) of b is the element of dy of this filter, at the
/// position at which this window element is over pixel j. It is 0 if there is no such position.
template <class T, class Out>
struct input_gradient_problem {
  using type = T;
  static constexpr bool runs_down = false;
  convolution_sizes size;
  view<const T> dy, w;
  convolution_output<Out> dx;

  TROUPE_DEVICE const view<const T>& left() const { return w; }
  TROUPE_DEVICE std::size_t left_at(unsigned group, unsigned k) const {
    const auto filter = size.divide(k, size.by_window);
    const auto f = group * std::size_t{size.group_filters} + filter.quotient;
    return f * size.group_channels * size.window_size + filter.rest;
  }
  TROUPE_DEVICE std::size_t left_row() const { return size.window_size; }
  /// Here, pixels are counted from the edge of the padding. Then pixel = position * stride +
  /// distance. The distance is the number of pixels from the first pixel of the window to the
  /// window element. So the pixel and the distance must have the same remainder when they are
  /// divided by the stride. The position is the difference of the two quotients.
  TROUPE_DEVICE half_position element_at(unsigned k) const {
    const auto e = size.element_at(k);
    const auto h = divided_half(e.y, e.x);
    return {e.channel * size.positions() - h.offset, 0 - h.y, 0 - h.x, h.phase};
  }
  TROUPE_DEVICE place<T> place_at(unsigned group, unsigned j) const {
    const auto image = size.divide(j, size.by_pixels);
    const auto row = size.divide(image.rest, size.by_width);
    const auto begin = size.at_result(image.quotient, group * size.group_filters);
    return {dy, begin, divided_half(row.quotient + size.pad_y, row.rest + size.pad_x)};
  }
  TROUPE_DEVICE unsigned height() const { return size.out_height; }
  TROUPE_DEVICE unsigned width() const { return size.out_width; }
  TROUPE_DEVICE std::size_t result_at(unsigned, unsigned j) const {
    const auto image = size.divide(j, size.by_pixels);
    return size.at_image(image.quotient, 0) + image.rest;
  }
  TROUPE_DEVICE void store(std::size_t column, unsigned row, float sum) const {
    dx.store(column + std::size_t{row} * size.pixels(), row, sum);
  }

private:
  TROUPE_DEVICE half_position divided_half(unsigned y, unsigned x) const {
    const auto down = size.divide(y, size.by_stride_y);
    const auto right = size.divide(x, size.by_stride_x);
    // The last number is the phase. Remainders of columns are less than the width of the padded
    // image, so each pair of remainders (row, column) has a different phase.
    return {down.quotient * size.out_width + right.quotient, down.quotient, right.quotient,
            down.rest * (size.width + 2 * size.pad_x) + right.rest};
  }
};

/// The gradient of the weights. The matrix a is dy (filters, images * positions), and the matrix b
/// has image elements (images * positions, patch). The sum over images * positions is divided into
/// parts.
template <class T>
struct weight_gradient_problem {
  using type = T;
  static constexpr bool runs_down = true;
  convolution_sizes size;
  view<const T> x, dy;
  view<float> partial; // (parts, filters, patch)

  TROUPE_DEVICE const view<const T>& left() const { return dy; }
  TROUPE_DEVICE std::size_t left_at(unsigned group, unsigned k) const {
    const auto image = size.divide(k, size.by_positions);
    return size.at_result(image.quotient, group * size.group_filters) + image.rest;
  }
  TROUPE_DEVICE std::size_t left_row() const { return size.positions(); }
  TROUPE_DEVICE half_position element_at(unsigned j) const { return size.patch_element(j); }
  TROUPE_DEVICE place<T> place_at(unsigned group, unsigned k) const {
    return size.patch_at(x, group, k);
  }
  TROUPE_DEVICE unsigned height() const { return size.height; }
  TROUPE_DEVICE unsigned width() const { return size.width; }
  TROUPE_DEVICE std::size_t result_at(unsigned part, unsigned j) const {
    return std::size_t{part} * size.filters * patch() + j;
  }
  TROUPE_DEVICE void store(std::size_t column, unsigned row, float sum) const {
    partial.store(column + std::size_t{row} * patch(), sum);
  }

private:
  TROUPE_DEVICE unsigned patch() const { return size.group_channels * size.window_size; }
};

} // namespace troupe::cuda
