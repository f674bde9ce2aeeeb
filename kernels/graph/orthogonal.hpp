#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>
#include <vector>

namespace troupe {

/// Computes orthogonal initial values and keeps them. The shards of a job in one process read
/// different parts of the same matrix. Each matrix is computed only once, in the first call that
/// needs it. Thread-safe: while one thread computes a matrix, other threads that need the same
/// matrix wait.
class orthogonal_matrices {
public:
  /// The matrix (rows, columns), row-major, that initializer::kind::orthogonal describes: `gain`
  /// times Q of the Householder QR decomposition of a matrix of normal numbers. Each of these
  /// numbers comes from its own random stream: element i of the row-major matrix from
  /// random_stream(key, {i}).
  ///
  /// Let n be the smaller extent and m the larger one. The computation takes about 4 m n^2
  /// operations and 20 m n bytes of memory. 4 m n bytes of these are kept. The result is valid as
  /// long as this object exists.
  std::span<const float> get(std::uint64_t key, double gain, std::size_t rows, std::size_t columns);

  /// Number of matrices that have been computed or are being computed.
  std::size_t computed() const;

private:
  struct entry {
    std::once_flag once;
    std::vector<float> values;
  };

  mutable std::mutex mutex_;
  std::map<std::tuple<std::uint64_t, double, std::size_t, std::size_t>, std::unique_ptr<entry>>
    entries_;
};

} // namespace troupe
