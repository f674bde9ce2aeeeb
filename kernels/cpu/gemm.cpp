// Compiled with -ffp-contract=fast: multiply-adds that Eigen leaves to the compiler (edges) are
// fused like those in its vectors.

#include "kernels/cpu/gemm.hpp"

#include <Eigen/Core>

#include <algorithm>

namespace troupe::cpu {

namespace {

using Eigen::ColMajor;
using Eigen::Dynamic;
using Eigen::Index;
using Eigen::RowMajor;

/// Bounds of the packed blocks. Depth: of floats Eigen's choice for 32 KiB of first-level cache,
/// whatever the machine has: rounding does not differ from machine to machine, and the step of an
/// MLP takes the same time with 264 to 784 floats. Elements: both blocks share the second-level
/// cache.
template <class T>
constexpr std::size_t max_depth = 1152 / sizeof(T);
template <class T>
constexpr std::size_t block_elements = (std::size_t{1} << 19) / sizeof(T);

std::size_t round_up(std::size_t x, std::size_t unit) {
  return (x + unit - 1) / unit * unit;
}

/// Blocks of about equal sizes, at most `most` each, multiples of `unit`.
std::size_t block_size(std::size_t n, std::size_t most, std::size_t unit) {
  const auto blocks = (n + most - 1) / most;
  return std::min(n, round_up((n + blocks - 1) / blocks, unit));
}

/// Where Eigen packs its operands, and in blocks of which size: space of ours, bounded for matrices
/// of any size.
template <class T>
class packing : public Eigen::internal::level3_blocking<T, T> {
public:
  packing(std::size_t rows, std::size_t columns, std::size_t depth, T* scratch) {
    // Multiples of what Eigen's kernels take at a time: 8 of the depth, 24 (12) rows, 4 columns.
    const auto kc = block_size(depth, max_depth<T>, 8);
    this->m_kc = static_cast<Index>(kc);
    this->m_mc = static_cast<Index>(block_size(rows, block_elements<T> / kc / 24 * 24, 24));
    this->m_nc = static_cast<Index>(block_size(columns, block_elements<T> / kc / 4 * 4, 4));
    this->m_blockA = scratch;
    this->m_blockB = scratch + block_elements<T>;
  }
};

/// The stride that is not 1.
template <class T>
Index outer_stride(const matrix<T>& x) {
  return static_cast<Index>(x.column_stride == 1 ? x.row_stride : x.column_stride);
}

/// c += a b. Eigen's kernels make column-major matrices: c^T += b^T a^T.
template <int order_a, int order_b, class T>
void multiply_blocks(Index m, Index n, Index k, matrix<T> a, matrix<T> b, T* c, Index row_stride,
                     packing<T>& blocks) {
  constexpr int left = order_b == RowMajor ? ColMajor : RowMajor;
  constexpr int right = order_a == RowMajor ? ColMajor : RowMajor;
  using product = Eigen::internal::general_matrix_matrix_product<Index, T, left, false, T, right,
                                                                 false, ColMajor, 1>;
  product::run(n, m, k, b.data, outer_stride(b), a.data, outer_stride(a), c, 1, row_stride, T(1),
               blocks);
}

template <class T, class... Rest>
void multiply_matrices(Index m, Index n, Index k, matrix<T> a, matrix<T> b, Rest&&... rest) {
  const bool rows_of_a = a.column_stride == 1;
  const bool rows_of_b = b.column_stride == 1;
  if (rows_of_a && rows_of_b)
    multiply_blocks<RowMajor, RowMajor>(m, n, k, a, b, rest...);
  else if (rows_of_a)
    multiply_blocks<RowMajor, ColMajor>(m, n, k, a, b, rest...);
  else if (rows_of_b)
    multiply_blocks<ColMajor, RowMajor>(m, n, k, a, b, rest...);
  else
    multiply_blocks<ColMajor, ColMajor>(m, n, k, a, b, rest...);
}

/// out (m) = x (m, k) v (k).
template <int order, class T>
void multiply_vector(Index m, Index k, matrix<T> x, const T* v, T* out) {
  using vector = Eigen::Matrix<T, Dynamic, 1>;
  using view = Eigen::Map<const Eigen::Matrix<T, Dynamic, Dynamic, order>, Eigen::Unaligned,
                          Eigen::OuterStride<>>;
  Eigen::Map<vector>(out, m).noalias() =
    view(x.data, m, k, Eigen::OuterStride<>(outer_stride(x))) * Eigen::Map<const vector>(v, k);
}

template <class T>
void multiply_vector(Index m, Index k, matrix<T> x, const T* v, T* out) {
  if (x.column_stride == 1)
    multiply_vector<RowMajor>(m, k, x, v, out);
  else
    multiply_vector<ColMajor>(m, k, x, v, out);
}

} // namespace

template <class T>
std::size_t gemm_scratch_elements() noexcept {
  return 2 * block_elements<T>;
}

template <class T>
void gemm(std::size_t m, std::size_t n, std::size_t k, matrix<T> a, matrix<T> b, T* c,
          std::size_t row_stride, T* scratch) {
  if (m == 0 || n == 0)
    return;
  const auto rows = static_cast<Index>(m);
  const auto columns = static_cast<Index>(n);
  const auto depth = static_cast<Index>(k);
  // Only vectors without gaps: Eigen copies others, on the heap if they are long.
  if (k > 0 && m == 1 && a.column_stride == 1)
    return multiply_vector(columns, depth, b.transposed(), a.data, c);
  if (k > 0 && n == 1 && b.row_stride == 1 && row_stride == 1)
    return multiply_vector(rows, depth, a, b.data, c);
  for (std::size_t i = 0; i < m; ++i)
    std::fill_n(c + i * row_stride, n, T(0));
  if (k == 0)
    return;
  packing<T> blocks(n, m, k, scratch);
  multiply_matrices(rows, columns, depth, a, b, c, static_cast<Index>(row_stride), blocks);
}

template std::size_t gemm_scratch_elements<float>() noexcept;
template std::size_t gemm_scratch_elements<double>() noexcept;
template void gemm(std::size_t, std::size_t, std::size_t, matrix<float>, matrix<float>, float*,
                   std::size_t, float*);
template void gemm(std::size_t, std::size_t, std::size_t, matrix<double>, matrix<double>, double*,
                   std::size_t, double*);

} // namespace troupe::cpu
