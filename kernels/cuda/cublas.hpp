#pragma once

#include "kernels/cuda/device.hpp"

#include <memory>

namespace troupe::cuda {

/// Computes matrix products by cuBLAS. The operands are float32, bfloat16 or float16, or float32
/// that is rounded to TF32. The library is loaded at run time, once in a process, so programs also
/// run on machines without it.
class cublas {
public:
  /// Products will run in this stream of the current device. Throws device_error if the library is
  /// missing or does not start.
  /// @param workspace product_space_bytes of device memory, aligned to 256 bytes, borrowed; if it
  /// is null, cuBLAS allocates work space itself, and products cannot be recorded
  cublas(stream where, void* workspace);
  ~cublas();
  cublas(const cublas&) = delete;
  cublas& operator=(const cublas&) = delete;

  void multiply(const product& x);

private:
  struct context;
  std::unique_ptr<context> context_;
};

} // namespace troupe::cuda
