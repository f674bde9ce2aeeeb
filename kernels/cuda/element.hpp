#pragma once

#include "kernels/cpu/element_formulas.hpp"
#include "kernels/cpu/math.hpp"
#include "kernels/graph/graph.hpp"

namespace troupe::cuda {

/// One element of an element-wise operation, with the functions of the CPU, so results have the
/// same bits. Operands that the operation does not have are not read. Returns 0 for other
/// operations.
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

/// The epilogue of a product, a convolution or a sum with a bias: see instruction::after.
struct ending {
  /// `end` for none.
  operation after = operation::end;
  /// (as the result), for derivatives; else null.
  const void* operand = nullptr;
  dtype type = dtype::float32;
};

} // namespace troupe::cuda
