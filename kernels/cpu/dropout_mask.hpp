#pragma once

#include "kernels/host_device.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe::cpu {

/// Mixes the bits of h (Wellons' hash function lowbias32). It uses only 32-bit arithmetic, so a
/// vector of 32 bytes holds eight elements.
TROUPE_HOST_DEVICE inline std::uint32_t mix(std::uint32_t h) noexcept {
  h ^= h >> 16;
  h *= 0x7feb352dU;
  h ^= h >> 15;
  h *= 0x846ca68bU;
  h ^= h >> 16;
  return h;
}

/// 24 random bits for element i under a key. Dropout keeps the element if these bits, as a number,
/// are at least rate * 2^24 (kernels/graph/operations.hpp). The result is signed, because AVX2 can
/// compare only signed vector elements.
TROUPE_HOST_DEVICE inline std::int32_t dropout_bits(std::size_t i, std::uint64_t key) noexcept {
  const auto low = static_cast<std::uint32_t>(key);
  const auto high = static_cast<std::uint32_t>(key >> 32);
  const auto counter = static_cast<std::uint32_t>(i) * 0x9e3779b9U + low;
  return static_cast<std::int32_t>(mix(mix(counter) ^ high) >> 8);
}

} // namespace troupe::cpu
