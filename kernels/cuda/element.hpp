#pragma once

#include "kernels/cpu/element_formulas.hpp"
#include "kernels/cpu/math.hpp"
#include "kernels/graph/graph.hpp"

namespace troupe::cuda {

/// Computes one element of an element-wise operation. It uses the functions of the CPU's kernels,
/// so the results have the same bits as on the CPU. Operands that the operation does not have are
/// ignored. Returns 0 if the operation is not element-wise.
TROUPE_HOST_DEVICE inline float apply(operation op, float a, float b, float c, float factor) {
#define TROUPE_ELEMENT_CASE(kind, name, formula)                                                   \
  case operation::name:                                                                            \
    return formula;
  switch (op) {
    TROUPE_ELEMENTS(TROUPE_ELEMENT_CASE)
  default:
    return 0;
  }
#undef TROUPE_ELEMENT_CASE
}

/// The number of operands of an element-wise operation; 0 for other operations. The constants have
/// the names of the kinds of operations in kernels/cpu/element_formulas.hpp, because
/// TROUPE_ELEMENT_CASE returns the constant whose name is `kind`.
constexpr unsigned operand_count(operation op) {
  constexpr unsigned unary = 1;
  constexpr unsigned costly_unary = 1;
  constexpr unsigned activation = 1;
  constexpr unsigned costly_activation = 1;
  constexpr unsigned binary = 2;
  constexpr unsigned costly_binary = 2;
  constexpr unsigned derivative = 2;
  constexpr unsigned ternary = 3;
#define TROUPE_ELEMENT_CASE(kind, name, formula)                                                   \
  case operation::name:                                                                            \
    return kind;
  switch (op) {
    TROUPE_ELEMENTS(TROUPE_ELEMENT_CASE)
  default:
    return 0;
  }
#undef TROUPE_ELEMENT_CASE
}

/// The epilogue of a product, a convolution or a sum with a bias: see instruction::after.
struct ending {
  /// `end` if there is no epilogue.
  operation after = operation::end;
  /// The second operand of `after`. It has the shape of the result, and the type `type`. Null if
  /// `after` has only one operand.
  const void* operand = nullptr;
  dtype type = dtype::float32;
};

} // namespace troupe::cuda
