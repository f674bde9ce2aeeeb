#include "kernels/cuda/dense_product.hpp"

#include "kernels/cuda/conversions.hpp"
#include "kernels/cuda/elementwise.hpp"

namespace troupe::cuda {

namespace {

/// Computes the product with an epilogue. Returns false if the device does not have this epilogue.
bool multiply_at_once(device& gpu, stream where, const dense_product& x, void* space) {
  auto fused = x.what;
  fused.bias = x.bias;
  fused.after = x.last.after;
  // cublasLt accepts only a bias of the same type as the result.
  const bool rounds = x.bias != nullptr && is_narrow(fused.result);
  if (rounds)
    fused.bias = space;
  if (!gpu.fuses(fused))
    return false;
  if (rounds) {
    const converted bias[] = {{x.bias, dtype::float32, space, fused.result, fused.n}};
    convert(where, bias);
  }
  gpu.multiply(where, fused);
  return true;
}

} // namespace

void multiply(device& gpu, stream where, const dense_product& x, void* space) {
  const bool ends = x.bias != nullptr || x.last.after != operation::end;
  if (ends && multiply_at_once(gpu, where, x, space))
    return;
  auto plain = x.what;
  if (ends && is_narrow(plain.result)) {
    plain.c = space;
    plain.result = dtype::float32;
  }
  gpu.multiply(where, plain);
  if (ends)
    finish(where,
           {plain.batch * plain.m * plain.n,
            plain.n,
            1,
            static_cast<const float*>(plain.c),
            x.bias,
            x.last,
            {x.what.c, x.what.result}});
}

void finish(stream where, const product_end& x) {
  if (x.bias != nullptr) {
    by_channel(
      where, channel_operation::add,
      {x.n, x.channels, x.inner, x.x, x.bias, x.last, x.out.data, dtype::float32, x.out.type});
  } else if (x.last.after != operation::end) {
    const mixed_input first{x.x};
    const mixed_input inputs[] = {
      first, x.last.operand != nullptr ? mixed_input{x.last.operand, x.last.type} : first};
    const element_step program[] = {{x.last.after, 0, 1, 1, 2}};
    elementwise(where, program, x.n, inputs, 0, x.out);
  }
}

} // namespace troupe::cuda
