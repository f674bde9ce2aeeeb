#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace troupe {

/// The order in which an epoch visits n records: a pseudo-random permutation of 0 .. n - 1,
/// determined by (seed, epoch).
///
/// The order is computed, not stored: `at` takes O(1) time and no memory. So any node can compute
/// the records of any lease (a range of positions that a worker trains). The permutation is a
/// Feistel network over the smallest power of two that is at least n and at least 256. The network
/// is applied repeatedly until the result is below n (Black and Rogaway, "Ciphers with arbitrary
/// finite domains", 2002). It uses only integer arithmetic, so it is the same on every machine.
/// Immutable; any thread may use it.
class permutation {
public:
  permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch) noexcept;

  std::uint64_t size() const noexcept { return size_; }

  /// The record at `position` (below size()).
  std::uint64_t at(std::uint64_t position) const noexcept;

  /// The records at positions first .. first + records.size() - 1. These positions must be below
  /// size().
  void fill(std::uint64_t first, std::span<std::uint64_t> records) const noexcept;

private:
  static constexpr unsigned rounds = 6;
  std::uint64_t size_;
  unsigned low_bits_;
  std::uint64_t low_mask_;
  std::uint64_t high_mask_;
  std::array<std::uint64_t, rounds> keys_;
};

} // namespace troupe
