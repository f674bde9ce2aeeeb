#include "apps/troupe/bench/eigen_product.hpp"

#include <Eigen/Core>

namespace troupe::cpu {

namespace {

using row_matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using column_matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;

Eigen::Index index(std::size_t x) {
  return static_cast<Eigen::Index>(x);
}

/// Calls f with x as an Eigen matrix (rows, columns), without copying x.
template <class F>
void view(const matrix<float>& x, std::size_t rows, std::size_t columns, F f) {
  if (x.column_stride == 1)
    f(Eigen::Map<const row_matrix, 0, Eigen::OuterStride<>>(
      x.data, index(rows), index(columns), Eigen::OuterStride<>(index(x.row_stride))));
  else
    f(Eigen::Map<const column_matrix, 0, Eigen::OuterStride<>>(
      x.data, index(rows), index(columns), Eigen::OuterStride<>(index(x.column_stride))));
}

} // namespace

void eigen_product(std::size_t m, std::size_t n, std::size_t k, matrix<float> a, matrix<float> b,
                   float* c) {
  Eigen::Map<row_matrix> out(c, index(m), index(n));
  view(a, m, k, [&](const auto& left) {
    view(b, k, n, [&](const auto& right) { out.noalias() = left * right; });
  });
}

} // namespace troupe::cpu
