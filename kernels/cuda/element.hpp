#pragma once

#include "kernels/cpu/math.hpp"
#include "kernels/graph/graph.hpp"

namespace troupe::cuda {

/// One element of an element-wise operation, with the functions of the CPU, so results have the
/// same bits. Operands that the operation does not have are not read. Returns 0 for other
/// operations.
TROUPE_HOST_DEVICE inline float apply(operation op, float a, float b, float c, float factor) {
  switch (op) {
  case operation::add:
    return a + b;
  case operation::subtract:
    return a - b;
  case operation::multiply:
    return a * b;
  case operation::divide:
    return a / b;
  case operation::scale:
    return factor * a;
  case operation::offset:
    return a + factor;
  case operation::exp:
    return cpu::exp(a);
  case operation::log:
    return cpu::log(a);
  case operation::square_root:
    return std::sqrt(a);
  case operation::absolute:
    return std::fabs(a);
  case operation::sign:
    return cpu::sign(a);
  case operation::erf:
    return cpu::erf(a);
  case operation::gelu:
    return cpu::gelu(a);
  case operation::softplus:
    return cpu::softplus(a);
  case operation::relu:
    return cpu::relu(a);
  case operation::leaky_relu:
    return a > 0 ? a : factor * a;
  case operation::tanh:
    return cpu::tanh(a);
  case operation::sigmoid:
    return cpu::sigmoid(a);
  case operation::relu_gradient:
    return cpu::relu_gradient(a, b);
  case operation::leaky_relu_gradient:
    return cpu::leaky_relu_gradient(a, b, factor);
  case operation::tanh_gradient:
    return cpu::tanh_gradient(a, b);
  case operation::sigmoid_gradient:
    return cpu::sigmoid_gradient(a, b);
  case operation::gelu_gradient:
    return cpu::gelu_gradient(a, b);
  case operation::maximum:
    return cpu::maximum(a, b);
  case operation::minimum:
    return cpu::minimum(a, b);
  case operation::at_least:
    return a < factor ? factor : a;
  case operation::at_most:
    return a > factor ? factor : a;
  case operation::greater:
    return cpu::greater(a, b);
  case operation::above:
    return cpu::above(a, factor);
  case operation::select:
    return cpu::select(a, b, c);
  case operation::cast:
    return a;
  default:
    return 0;
  }
}

/// The epilogue of a product, a convolution or a sum with a bias: see instruction::after.
struct ending {
  /// `end` for none.
  operation after = operation::end;
  /// (as the result), for derivatives; else null.
  const void* operand = nullptr;
  dtype type = dtype::float32;
};

} // namespace troupe::cuda
