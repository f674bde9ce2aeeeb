#include "kernels/graph/orthogonal.hpp"

#include "kernels/random.hpp"

#include <Eigen/QR>

#include <algorithm>

namespace troupe {

namespace {

using matrix = Eigen::MatrixXd;
using index = Eigen::Index;

/// Eigen divides products into blocks that fit the processor's caches. The order of the additions
/// depends on the block size. With a fixed block size, sums have the same bits on every processor.
/// The block size is set before main(), when no other thread can read it.
[[maybe_unused]] const bool blocks_are_fixed = [] {
  Eigen::setCpuCacheSizes(32 << 10, 512 << 10, 8 << 20);
  return true;
}();

/// Makes the columns of `vectors` orthonormal: returns Q of the QR decomposition. Signs are changed
/// so that the diagonal of R is positive. Otherwise, the signs of Q would depend on the choices of
/// the algorithm.
matrix orthonormal(matrix vectors) {
  const Eigen::HouseholderQR<Eigen::Ref<matrix>> decomposition(vectors);
  matrix q;
  if (vectors.rows() == vectors.cols())
    q = decomposition.householderQ();
  else
    q = decomposition.householderQ() * matrix::Identity(vectors.rows(), vectors.cols());
  for (index i = 0; i < vectors.cols(); ++i)
    if (decomposition.matrixQR()(i, i) < 0)
      q.col(i) *= -1;
  return q;
}

/// Computes the matrix of orthogonal_matrices::get. Element i of the row-major matrix of normal
/// numbers comes from its own random stream, (key, i).
std::vector<float> compute(std::uint64_t key, double gain, std::size_t rows, std::size_t columns) {
  const bool wide = rows <= columns; // The rows of the result are the vectors.
  matrix vectors(static_cast<index>(std::max(rows, columns)),
                 static_cast<index>(std::min(rows, columns)));
  const auto at = [&](matrix& x, std::size_t i) -> double& {
    const auto row = static_cast<index>(i / columns);
    const auto column = static_cast<index>(i % columns);
    return wide ? x(column, row) : x(row, column);
  };
  std::vector<float> result(rows * columns);
  for (std::size_t i = 0; i < result.size(); ++i)
    at(vectors, i) = random_stream(key, {i}).normal();
  auto q = orthonormal(std::move(vectors));
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = static_cast<float>(gain * at(q, i));
  return result;
}

} // namespace

std::span<const float> orthogonal_matrices::get(std::uint64_t key, double gain, std::size_t rows,
                                                std::size_t columns) {
  entry* found = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    auto& place = entries_[{key, gain, rows, columns}];
    if (!place)
      place = std::make_unique<entry>();
    found = place.get();
  }
  std::call_once(found->once, [&] { found->values = compute(key, gain, rows, columns); });
  return found->values;
}

std::size_t orthogonal_matrices::computed() const {
  const std::scoped_lock lock(mutex_);
  return entries_.size();
}

} // namespace troupe
