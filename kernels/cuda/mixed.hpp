#pragma once

#include "kernels/graph/dtype.hpp"

namespace troupe::cuda {

/// An operand of a kernel: elements of float32, bfloat16 or float16 in device memory. Kernels
/// compute in float32 and round their results once.
struct mixed_input {
  const void* data = nullptr;
  dtype type = dtype::float32;

  mixed_input() = default;
  mixed_input(const float* x) : data(x) {} // NOLINT: implicit
  mixed_input(const void* x, dtype of) : data(x), type(of) {}
};

/// A result of a kernel, with the types of mixed_input.
struct mixed_output {
  void* data = nullptr;
  dtype type = dtype::float32;

  mixed_output() = default;
  mixed_output(float* x) : data(x) {} // NOLINT: implicit
  mixed_output(void* x, dtype of) : data(x), type(of) {}
};

} // namespace troupe::cuda
