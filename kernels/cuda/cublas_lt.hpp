#pragma once

#include "kernels/cuda/device.hpp"

#include <memory>

namespace troupe::cuda {

/// Computes products with epilogues (epilogue.hpp) by cublasLt. The operands are float32, bfloat16
/// or float16, or float32 that is rounded to TF32. The library is loaded at run time, like cuBLAS.
/// cublasLt proposes an algorithm for each kind of product. A kind is a combination of sizes,
/// transpositions, types, epilogue, and alignment of the operands. The proposal is requested once
/// and kept.
class cublas_lt {
public:
  /// Products will run on the current device. Throws device_error if the library is missing or does
  /// not start.
  /// @param workspace product_space_bytes of device memory, for algorithms, aligned to 256 bytes,
  /// borrowed
  explicit cublas_lt(void* workspace);
  ~cublas_lt();
  cublas_lt(const cublas_lt&) = delete;
  cublas_lt& operator=(const cublas_lt&) = delete;

  /// True if cublasLt has an algorithm for this product. Does not access the device.
  bool fuses(const product& x);
  /// fuses(x) must be true. Allocates nothing, so a CUDA graph can record the product.
  void multiply(stream where, const product& x);

private:
  struct library;
  struct choice;
  const choice& chosen(const product& x);

  std::unique_ptr<library> library_;
  void* workspace_;
};

} // namespace troupe::cuda
