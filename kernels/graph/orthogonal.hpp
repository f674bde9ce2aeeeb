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

/// Keeps orthogonal initial values. The shards of a job in one process read different parts of the
/// same matrix, which is computed only once, for the first of them. Thread-safe: if another thread
/// is computing the same matrix, a thread waits for it.
class orthogonal_matrices {
public:
  /// A matrix (rows, columns), row-major, as initializer::kind::orthogonal describes it: `gain`
  /// times Q of the Householder QR decomposition of normal numbers from the stream `key`. With n
  /// the smaller extent and m the larger, it takes about 4 m n^2 operations and 20 m n bytes of
  /// memory, and keeps 4 m n bytes. The result is valid as long as this object.
  std::span<const float> get(std::uint64_t key, double gain, std::size_t rows, std::size_t columns);

  /// Number of matrices computed so far.
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
