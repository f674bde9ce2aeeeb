#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/element.hpp"
#include "kernels/cuda/mixed.hpp"

#include <cstddef>

namespace troupe::cuda {

/// c = last(op(a) op(b) + bias), rounded once to the type of c. Exception: an epilogue with a
/// result of 16 bits also rounds the bias to 16 bits.
struct dense_product {
  /// Without an epilogue.
  product what;
  const float* bias = nullptr; // (n); null for none
  ending last;
};

/// Multiplies with an epilogue if the device has it (device::fuses). Otherwise, one more launch
/// applies bias and ending. `space`: m * n float32, used only if the result has 16 bits and a bias
/// or an ending.
void multiply(device& gpu, stream where, const dense_product& x, void* space);

/// What follows a product or a convolution: out = last(x + bias). The bias has one value for each
/// `inner` elements of `channels`.
struct product_end {
  std::size_t n = 0;
  std::size_t channels = 1;
  std::size_t inner = 1;
  const float* x = nullptr;    // (n); may be the result
  const float* bias = nullptr; // (channels); null for none
  ending last;
  mixed_output out; // (n)
};
/// Does nothing if there is neither a bias nor an ending.
void finish(stream where, const product_end& x);

} // namespace troupe::cuda
