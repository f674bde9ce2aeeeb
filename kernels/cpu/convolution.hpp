#pragma once

#include "kernels/graph/graph.hpp"
#include "kernels/plan/instruction.hpp"
#include "kernels/range.hpp"

#include <cstddef>

namespace troupe::cpu {

/// The sizes of a batch of images (count, channels, height, width).
struct images {
  std::size_t count = 0;
  std::size_t channels = 0;
  std::size_t height = 0;
  std::size_t width = 0;

  std::size_t pixels() const noexcept { return height * width; }
  std::size_t per_image() const noexcept { return channels * pixels(); }
};

/// The sizes of a tensor (batch, channels, ...). With rank 4, the last two dimensions are height
/// and width. With another rank, the height is the product of all dimensions after the channels,
/// and the width is 1.
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

// Convolutions as matrix products. The patch of the image under each position of the window becomes
// a column of a matrix (channels x window, positions). The matrix is built for one image and one
// group at a time, so it stays in the second-level cache (Chellapilla, Puri and Simard, 2006).
// Formulas: kernels/graph/image_operations.hpp. Most convolutions of stride 1 need no such matrix
// (direct_convolution.hpp).
//
// `scratch` has conv2d_scratch_elements<T>() elements, aligned to 64 bytes. Different threads may
// compute parts of a result, each with its own scratch space. The bits do not depend on the
// division into parts.

/// x: the sizes of the input image; y: the sizes of the output.
template <class T>
std::size_t conv2d_scratch_elements(const images& x, const images& y, const window& how);

/// The operations that are applied to a result while it is in the cache. The members of
/// `instruction` for them are `bias`, `after` and `epilogue_operand`.
template <class T>
struct finish {
  /// One element per channel. Null if there is no bias.
  const T* bias = nullptr;
  std::optional<operation> after;
  /// The operand of `after`, with the size of the result. Null if `after` has no operand.
  const T* operand = nullptr;
};

/// Computes the images `part` of y = conv2d(x, w).
template <class T>
void conv2d(const images& in, const images& out, const window& how, const T* x, const T* w,
            const finish<T>& last, T* y, T* scratch, range part);

/// Computes the images `part` of dx = conv2d_input_gradient(dy, w). in: the sizes of dx; out: the
/// sizes of dy.
template <class T>
void conv2d_input_gradient(const images& in, const images& out, const window& how, const T* dy,
                           const T* w, const finish<T>& last, T* dx, T* scratch, range part);

/// Computes dw = conv2d_weight_gradient(x, dy), summed in the order of the images. The gradient of
/// a filter has the shape (channels / groups, window height, window width). For each filter, the
/// function computes the elements `part` of this gradient.
template <class T>
void conv2d_weight_gradient(const images& in, const images& out, const window& how, const T* x,
                            const T* dy, T* dw, T* scratch, range part);

// -- channels: x (count, channels, pixels) --

/// out = x + b[c] for each channel c. out may be x.
template <class T>
void add_channel_bias(const images& size, const T* x, const T* b, T* out);
/// out (channels) = the sums over images and pixels, in double. Computes only the channels `part`.
template <class T>
void sum_channels(const images& size, const T* x, T* out, range part);
template <class T>
void broadcast_channels(const images& size, const T* x, T* out);

// -- pooling --
// in: sizes of the images. out: sizes of the result. A plane is one channel of one image. `planes`
// is a range of the count * channels planes.

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
