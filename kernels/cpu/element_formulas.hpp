#pragma once

#include <cmath>

// The table of element-wise operations. Each row has a kind, a name and a formula. The formula
// computes an element from the operands a, b and c and from `factor`, the factor of the node. The
// loops of the CPU (element_loops.hpp) and the kernels of GPUs (kernels/cuda/element.hpp) are
// generated from these rows, so their results have the same bits. The functions are in math.hpp.
//
// The kinds are:
// - `unary`, `binary` and `ternary`: operations with one, two or three operands.
// - `activation`: a unary operation that can also be applied to the result of a product.
// - `derivative`: multiplies the result of a product, a, by the derivative of an activation. b is
//   the operand of the epilogue (instruction::epilogue_operand).
// - The prefix `costly`: the operation is faster with larger vectors. Operations without this
//   prefix are limited by the speed of the memory.
//
// The row of `cast` is used only in an instruction that combines several element-wise operations.
// executor_dense.cpp runs an instruction that is only a cast.
// clang-format off: it takes a * b for a declaration
#define TROUPE_ELEMENTS(ROW)                                                                       \
  ROW(binary, add, a + b)                                                                          \
  ROW(binary, subtract, a - b)                                                                     \
  ROW(binary, multiply, a* b)                                                                      \
  ROW(binary, divide, a / b)                                                                       \
  ROW(unary, scale, factor* a)                                                                     \
  ROW(unary, offset, a + factor)                                                                   \
  ROW(costly_unary, exp, cpu::exp(a))                                                              \
  ROW(costly_unary, log, cpu::log(a))                                                              \
  ROW(unary, square_root, std::sqrt(a))                                                            \
  ROW(unary, absolute, std::fabs(a))                                                               \
  ROW(unary, sign, cpu::sign(a))                                                                   \
  ROW(costly_unary, erf, cpu::erf(a))                                                              \
  ROW(costly_unary, erfc, cpu::erfc(a))                                                            \
  ROW(costly_unary, sine, cpu::sine(a))                                                            \
  ROW(costly_unary, cosine, cpu::cosine(a))                                                        \
  ROW(unary, round, std::rint(a))                                                                  \
  ROW(costly_unary, gelu, cpu::gelu(a))                                                            \
  ROW(costly_unary, softplus, cpu::softplus(a))                                                    \
  ROW(activation, relu, cpu::relu(a))                                                              \
  ROW(costly_activation, tanh, cpu::tanh(a))                                                       \
  ROW(costly_activation, sigmoid, cpu::sigmoid(a))                                                 \
  ROW(unary, leaky_relu, a > 0 ? a : factor * a)                                                   \
  ROW(derivative, relu_gradient, cpu::relu_gradient(a, b))                                         \
  ROW(derivative, tanh_gradient, cpu::tanh_gradient(a, b))                                         \
  ROW(derivative, sigmoid_gradient, cpu::sigmoid_gradient(a, b))                                   \
  ROW(binary, leaky_relu_gradient, cpu::leaky_relu_gradient(a, b, factor))                         \
  ROW(costly_binary, gelu_gradient, cpu::gelu_gradient(a, b))                                      \
  ROW(binary, maximum, cpu::maximum(a, b))                                                         \
  ROW(binary, minimum, cpu::minimum(a, b))                                                         \
  ROW(unary, at_least, a < factor ? factor : a)                                                    \
  ROW(unary, at_most, a > factor ? factor : a)                                                     \
  ROW(binary, greater, cpu::greater(a, b))                                                         \
  ROW(unary, above, cpu::greater(a, factor))                                                       \
  ROW(ternary, select, cpu::select(a, b, c))                                                       \
  ROW(unary, cast, a)
// clang-format on
