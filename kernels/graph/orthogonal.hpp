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

/// Orthogonal initial values that were computed. The shards of a job in one process read different
/// parts of the same matrix; it is computed for the first of them. Any thread; a thread that needs
/// a matrix which another one computes waits for it.
class orthogonal_matrices {
public:
  /// A matrix (rows, columns), row-major, as initializer::kind::orthogonal describes it: `gain`
  /// times Q of the Householder QR decomposition of normal numbers, those of the stream `key`. With
  /// n the smaller extent and m the larger: about 4 m n^2 operations, 20 m n bytes of memory
  /// meanwhile, 4 m n bytes kept. Valid as long as this object.
  std::span<const float> get(std::uint64_t key, double gain, std::size_t rows, std::size_t columns);

  /// Matrices that were computed so far.
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
