#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/element.hpp"
#include "kernels/cuda/mixed.hpp"

#include <cstddef>

namespace troupe::cuda {

/// A dense layer: c = last(op(a) op(b) + bias). `last` is a function such as ReLU, or the sum with
/// another matrix. If c has 16 bits, two values are rounded to 16 bits: the result, and either the
/// bias (if the device computes the bias and `last` in an epilogue) or the product.
struct dense_product {
  /// The product, without an epilogue.
  product what;
  const float* bias = nullptr; // (n); null if there is no bias
  ending last;
};

/// The number of bytes of work space that multiply() needs. `has_end` is true if a bias or a
/// function such as ReLU follows the product.
std::size_t product_space(const product& what, bool has_end) noexcept;

/// Computes a dense layer. If the device can (device::fuses), it computes the bias and x.last in an
/// epilogue of the product. Otherwise, one more launch computes them in place.
///
/// A product may use padded copies of its matrices. It then has no epilogue. This is done for large
/// 16-bit matrices whose rows are not multiples of 16 bytes, because cuBLAS multiplies aligned
/// matrices several times as fast. An example is GPT-2's output layer, which has 50257 columns.
void multiply(device& gpu, stream where, const dense_product& x, void* space);

/// The work after a product or a convolution: out = last(x + bias). The bias has one value for each
/// of `channels` channels. `inner` neighbouring elements belong to one channel.
struct product_end {
  std::size_t n = 0;
  std::size_t channels = 1;
  std::size_t inner = 1;
  mixed_input x;               // (n); may be the result
  const float* bias = nullptr; // (channels); null if there is no bias
  ending last;
  mixed_output out; // (n)
};
/// Computes out = last(x + bias) in one launch. Does nothing if there is no bias and no function
/// `last`.
void finish(stream where, const product_end& x);

} // namespace troupe::cuda
