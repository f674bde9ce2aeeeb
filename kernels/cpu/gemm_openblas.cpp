#include "kernels/cpu/gemm_openblas.hpp"

#include <algorithm>
#include <cblas.h>
#include <limits>

namespace troupe::cpu {

namespace {

/// Describes a matrix of `rows` by `columns` in the form that cblas expects.
struct operand {
  CBLAS_TRANSPOSE order;
  std::size_t stride;
  bool fits;

  operand(const matrix<float>& x, std::size_t rows, std::size_t columns) {
    const bool row_major = x.column_stride == 1;
    const auto width = row_major ? columns : rows;
    const auto lines = row_major ? rows : columns;
    order = row_major ? CblasNoTrans : CblasTrans;
    // `lines` is the number of contiguous rows or columns. If there is only one, cblas does not use
    // the stride, but still requires a stride of at least `width`.
    stride = lines == 1 ? width : row_major ? x.row_stride : x.column_stride;
    fits = stride >= width;
  }
};

} // namespace

bool openblas_product(std::size_t m, std::size_t n, std::size_t k, matrix<float> a, matrix<float> b,
                      float* c, std::size_t row_stride, bool accumulate) {
  // OpenBLAS uses only one thread, because the executor already divides the work among threads.
  static const bool single = (openblas_set_num_threads(1), true);
  const operand left(a, m, k);
  const operand right(b, k, n);
  const auto stride = std::max(row_stride, n);
  constexpr std::size_t most = std::numeric_limits<blasint>::max();
  if (!single || !left.fits || !right.fits || (row_stride < n && m > 1)
      || std::max({m, n, k, left.stride, right.stride, stride}) > most)
    return false;
  const auto size = [](std::size_t x) { return static_cast<blasint>(x); };
  cblas_sgemm(CblasRowMajor, left.order, right.order, size(m), size(n), size(k), 1, a.data,
              size(left.stride), b.data, size(right.stride), accumulate ? 1.0F : 0.0F, c,
              size(stride));
  return true;
}

} // namespace troupe::cpu
