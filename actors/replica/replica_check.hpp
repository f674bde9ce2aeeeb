#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// A 64-bit hash of the bits of these numbers, at the speed of memory: four independent lanes of
/// multiply, rotate and add, as in xxHash (Collet 2012, https://xxhash.com), over 32 bytes at a
/// time. It detects errors, but gives no protection against attackers.
std::uint64_t hash_of_bits(std::span<const float> values) noexcept;

/// A difference between replicas that should be equal.
struct replica_difference {
  /// The first bucket that differs.
  std::size_t bucket = 0;
  /// Ranks whose bucket differs from that of most ranks; all ranks if there is no majority.
  std::vector<std::size_t> ranks;
  bool majority = false;
};

/// Ranks exchange their hashes by a sum over all ranks. Each rank has its own place in a vector
/// that is 0 elsewhere. There it writes each hash as three whole numbers below 2^22, so that
/// float32 sums are exact.

/// Number of elements of that vector.
constexpr std::size_t check_elements(std::size_t ranks, std::size_t buckets) noexcept {
  return 3 * ranks * buckets;
}

/// Writes a rank's hashes, one per bucket, into its place.
void put_hashes(std::span<const std::uint64_t> hashes, std::size_t rank, std::span<float> into);

/// Compares the hashes of all ranks.
std::optional<replica_difference> compare_hashes(std::span<const float> sums, std::size_t ranks);

} // namespace troupe
