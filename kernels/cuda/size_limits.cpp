#include "kernels/cuda/size_limits.hpp"

#include "kernels/cpu/convolution.hpp"
#include "kernels/cpu/executor_state.hpp"
#include "kernels/error.hpp"
#include "kernels/plan/attention_layout.hpp"

#include <algorithm>
#include <limits>
#include <string>

namespace troupe::cuda {

namespace {

/// The product, or the largest number if the product is even larger.
std::size_t times(std::size_t a, std::size_t b) {
  constexpr auto most = std::numeric_limits<std::size_t>::max();
  return b > 0 && a > most / b ? most : a * b;
}

/// The numbers that an instruction counts in a run of `rows` samples.
struct checked_sizes {
  const instruction& x;
  std::size_t rows;

  /// @param of_batch true if the number grows with the number of samples
  void check(const char* what, std::size_t n, bool of_batch) const {
    if (n < size_limit)
      return;
    throw input_error("\"" + x.output.name + "\": " + std::string(to_string(x.op))
                      + (of_batch ? " of " + std::to_string(rows) + " samples" : "") + " has "
                      + std::to_string(n) + " " + what + ". A GPU takes fewer than "
                      + std::to_string(size_limit)
                      + (of_batch ? ". Use smaller batches" : ". Use a CPU for this model"));
  }

  /// The padded image also has to leave room for a stride, because the last window may begin behind
  /// the last pixel.
  void check_images(const operand& image) const {
    const auto in = cpu::images_of(image, rows);
    const auto& how = x.window;
    const auto padded = [](std::size_t size, std::int64_t pad, std::int64_t stride) {
      return size + 2 * static_cast<std::size_t>(pad) + static_cast<std::size_t>(stride);
    };
    check(
      "pixels in an image with its padding and one stride",
      times(padded(in.height, how.pad_y, how.stride_y), padded(in.width, how.pad_x, how.stride_x)),
      false);
  }

  /// @param places the images whose pixels, or positions of the window, are counted over all
  /// samples
  void check_convolution(const operand& image, const operand& result, const operand& places) const {
    check_images(image);
    const auto in = cpu::images_of(image, rows);
    const auto out = cpu::images_of(result, rows);
    const auto all = cpu::images_of(places, rows);
    const auto window =
      times(static_cast<std::size_t>(x.window.height), static_cast<std::size_t>(x.window.width));
    const auto channels =
      std::max(in.channels, out.channels) / static_cast<std::size_t>(x.window.groups);
    check("elements in an image", std::max(in.per_image(), out.per_image()), false);
    check("weights in a filter", times(channels, window), false);
    check("pixels in all samples", times(all.count, all.pixels()), true);
  }

  void check_ids(const operand& ids) const {
    const auto n = ids.shape.elements(1);
    check("ids in all samples", ids.shape.has_batch() ? times(rows, n) : n, true);
  }

  void check_product() const {
    for (const auto* matrix : {&x.inputs[0], &x.inputs[1]}) {
      const auto size = matrix_extent(matrix->shape, rows);
      check("rows in a matrix", size.rows, matrix->shape.has_batch());
      check("columns in a matrix", size.columns, false);
    }
  }

  /// The last two dimensions of an operand are those of a matrix, and the others count matrices.
  void check_products() const {
    for (const auto* matrices : {&x.inputs[0], &x.inputs[1]}) {
      const auto& shape = matrices->shape;
      std::size_t count = 1;
      for (std::size_t axis = 0; axis < shape.rank(); ++axis) {
        const bool samples = shape[axis] == shape::batch;
        const auto extent = samples ? rows : static_cast<std::size_t>(shape[axis]);
        if (axis + 2 < shape.rank())
          count = times(count, extent);
        else
          check("rows or columns in a matrix", extent, samples);
      }
      check("matrices in all samples", count, shape.has_batch());
    }
  }

  void check_attention() const {
    const attention_layout size(x, rows);
    check("rows in all heads of all samples",
          times(times(size.batch, size.heads), std::max(size.queries, size.keys)), true);
  }
};

} // namespace

// Most gradients count the same things as the instructions before them, so they need no check.
void check_sizes(const plan& what) {
  for (const auto& x : what.instructions()) {
    const checked_sizes sizes{x, what.max_rows()};
    switch (x.op) {
    case operation::matmul:
      sizes.check_product();
      break;
    case operation::batched_matmul:
      sizes.check_products();
      break;
    case operation::conv2d:
      sizes.check_convolution(x.inputs[0], x.output, x.output);
      break;
    case operation::conv2d_input_gradient:
      sizes.check_convolution(x.output, x.inputs[0], x.output);
      break;
    case operation::max_pool_select:
    case operation::average_pool:
      sizes.check_images(x.inputs[0]);
      break;
    case operation::attention:
      sizes.check_attention();
      break;
    case operation::embedding_gradient:
      sizes.check_ids(x.inputs[1]);
      break;
    default:
      break;
    }
  }
}

} // namespace troupe::cuda
