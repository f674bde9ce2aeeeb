#pragma once

#include "kernels/graph/graph.hpp"
#include "kernels/plan/instruction.hpp"
#include "kernels/range.hpp"

#include <cstddef>

namespace troupe::cpu {

/// Sizes of a batch of images (count, channels, height, width).
struct images {
  std::size_t count = 0;
  std::size_t channels = 0;
  std::size_t height = 0;
  std::size_t width = 0;

  std::size_t pixels() const noexcept { return height * width; }
  std::size_t per_image() const noexcept { return channels * pixels(); }
};

/// (batch, channels, ...): all further dimensions together are pixels, unless they are height and
/// width.
inline images images_of(const operand& x, std::size_t rows) {
  const auto extent = [&](std::size_t axis) {
    return axis < x.shape.rank() ? static_cast<std::size_t>(x.shape[axis]) : 1;
  };
  const auto count = x.shape.has_batch() ? rows : extent(0);
  if (x.shape.rank() == 4)
    return {count, extent(1), extent(2), extent(3)};
  return {count, extent(1), x.shape.elements(1) / (extent(1) * (x.shape.has_batch() ? 1 : count)),
          1};
}

// Convolutions as products of matrices: the patches under the window become the columns of a matrix
// (channels x window, positions), one image and group at a time, so that it stays in the
// second-level cache (Chellapilla, Puri and Simard, 2006). Formulas:
// kernels/graph/image_operations.hpp. Convolutions of stride 1 need no such matrix:
// direct_convolution.hpp. `scratch`: conv2d_scratch_elements<T>(), aligned to 64 bytes. Different
// threads may compute parts of a result, each with its own scratch space. This does not change the
// bits.

/// x: sizes of the input, y: of the output.
template <class T>
std::size_t conv2d_scratch_elements(const images& x, const images& y, const window& how);

/// What happens to a result before it leaves the cache: see instruction.
template <class T>
struct finish {
  /// One per channel; nullptr for none.
  const T* bias = nullptr;
  std::optional<operation> after;
  /// Of the size of the result.
  const T* operand = nullptr;
};

/// Images `part` of y = conv2d(x, w).
template <class T>
void conv2d(const images& in, const images& out, const window& how, const T* x, const T* w,
            const finish<T>& last, T* y, T* scratch, range part);

/// Images `part` of dx = conv2d_input_gradient(dy, w). in: sizes of dx, out: of dy.
template <class T>
void conv2d_input_gradient(const images& in, const images& out, const window& how, const T* dy,
                           const T* w, const finish<T>& last, T* dx, T* scratch, range part);

/// dw = conv2d_weight_gradient(x, dy), added up in the order of the images: of each filter, the
/// elements `part` of (channels / groups, height, width).
template <class T>
void conv2d_weight_gradient(const images& in, const images& out, const window& how, const T* x,
                            const T* dy, T* dw, T* scratch, range part);

// -- channels: x (count, channels, pixels) --

/// out = x + b per channel. out may be x.
template <class T>
void add_channel_bias(const images& size, const T* x, const T* b, T* out);
/// Channels `part` of out (channels): sums over images and pixels, added up in double.
template <class T>
void sum_channels(const images& size, const T* x, T* out, range part);
template <class T>
void broadcast_channels(const images& size, const T* x, T* out);

// -- pooling; in: sizes of the images, out: sizes of the result; the channels of all images, one
// after another, are planes --

template <class T>
void max_pool_select(const images& in, const images& out, const window& how, const T* v, const T* x,
                     T* y, range planes);
template <class T>
void max_pool_gradient(const images& in, const images& out, const window& how, const T* dy,
                       const T* x, const finish<T>& last, T* dx, range planes);
template <class T>
void average_pool(const images& in, const images& out, const window& how, const T* x, T* y,
                  range planes);
template <class T>
void average_pool_gradient(const images& in, const images& out, const window& how, const T* dy,
                           T* dx, range planes);

} // namespace troupe::cpu
