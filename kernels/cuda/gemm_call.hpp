#pragma once

#include "kernels/cuda/device.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

namespace troupe::cuda {

/// The arguments of a strided batched product, in BLAS conventions: matrices are column-major, and
/// `lead` is the distance between neighbouring columns, in elements. C (m, n) = op(A) op(B), with
/// op(A) (m, k) and op(B) (k, n).
struct gemm_call {
  struct matrix {
    const void* data = nullptr;
    bool transposed = false;
    int lead = 1;
    /// The distance between the first elements of two neighbouring matrices of the batch, in
    /// elements.
    std::int64_t stride = 0;
  };
  int m = 0;
  int n = 0;
  int k = 0;
  matrix a;
  matrix b;
  void* c = nullptr;
  int c_lead = 1;
  std::int64_t c_stride = 0;
  int batch = 1;
};

/// The arguments for a product. BLAS sees each row-major matrix as its transpose. Therefore, the
/// call computes c^T = op(b)^T op(a)^T, with swapped operands. Throws std::invalid_argument if an
/// extent does not fit into an int. If `m`, `n` or `batch` is 0, there is nothing to compute. If
/// `k` is 0, BLAS may leave c unchanged, so the caller must write 0.
inline gemm_call gemm_of(const product& x) {
  const auto number = [](std::size_t y) {
    if (y > static_cast<std::size_t>(std::numeric_limits<int>::max()))
      throw std::invalid_argument("a matrix has too many rows or columns for a product: "
                                  + std::to_string(y));
    return static_cast<int>(y);
  };
  const auto columns = [&](std::size_t y) { return number(std::max<std::size_t>(y, 1)); };
  gemm_call result;
  result.m = number(x.n);
  result.n = number(x.m);
  result.k = number(x.k);
  const auto lead = [&](std::size_t given, std::size_t contiguous) {
    return columns(given > 0 ? given : contiguous);
  };
  result.a = {x.b, x.transpose_b, lead(x.lead_b, x.transpose_b ? x.k : x.n),
              static_cast<std::int64_t>(x.k * x.n)};
  result.b = {x.a, x.transpose_a, lead(x.lead_a, x.transpose_a ? x.m : x.k),
              static_cast<std::int64_t>(x.m * x.k)};
  result.c = x.c;
  result.c_lead = columns(x.n);
  result.c_stride = static_cast<std::int64_t>(x.m * x.n);
  result.batch = number(x.batch);
  return result;
}

/// The text for errors, such as "2 times (64, 784) (784, 256) of float32".
inline std::string to_string(const product& x) {
  const auto extents = [](std::size_t rows, std::size_t columns) {
    return "(" + std::to_string(rows) + ", " + std::to_string(columns) + ")";
  };
  return (x.batch == 1 ? "" : std::to_string(x.batch) + " times ") + extents(x.m, x.k) + " "
    + extents(x.k, x.n) + " of " + std::string(to_string(x.operands));
}

} // namespace troupe::cuda
