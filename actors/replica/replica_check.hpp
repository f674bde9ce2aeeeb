#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// A 64-bit hash of the bits of these numbers. It is as fast as the memory: four independent lanes
/// multiply, rotate and add 32 bytes at a time, as in xxHash (Collet 2012, https://xxhash.com). It
/// detects errors, but gives no protection against attackers.
std::uint64_t hash_of_bits(std::span<const float> values) noexcept;

/// A difference between replicas that should be equal.
struct replica_difference {
  /// The first bucket that differs.
  std::size_t bucket = 0;
  /// The ranks whose bucket differs from the bucket of most ranks. All ranks if there is no
  /// majority.
  std::vector<std::size_t> ranks;
  bool majority = false;
};

/// Number of elements of the vector by which ranks exchange their hashes. Each rank writes its
/// hashes into its own part of a vector of zeros, and all vectors are added up. A hash is written
/// as three whole numbers below 2^22, so that the float32 sums are exact.
constexpr std::size_t check_elements(std::size_t ranks, std::size_t buckets) noexcept {
  return 3 * ranks * buckets;
}

/// Writes a rank's hashes, one per bucket, into the rank's part of this vector.
void put_hashes(std::span<const std::uint64_t> hashes, std::size_t rank, std::span<float> into);

/// Compares the hashes of all ranks. Returns nothing if they are equal.
std::optional<replica_difference> compare_hashes(std::span<const float> sums, std::size_t ranks);

} // namespace troupe
