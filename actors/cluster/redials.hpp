#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace troupe {

inline constexpr std::chrono::milliseconds first_pause{50};
inline constexpr std::chrono::milliseconds longest_pause{1'000};

/// The pause before the next attempt to reach a node. It doubles with each attempt, from about 50
/// ms to about 1 s. A random part of up to half of the pause is added or subtracted. Waiting nodes
/// then do not all dial at the same time.
/// @param attempts number of attempts so far
/// @param random state of the generator (xorshift64, Marsaglia 2003); must not be 0
inline std::chrono::milliseconds pause_before(int attempts, std::uint64_t& random) noexcept {
  random ^= random << 13;
  random ^= random >> 7;
  random ^= random << 17;
  const auto base = std::min(first_pause * (1 << std::clamp(attempts, 0, 6)), longest_pause);
  return base / 2 + std::chrono::milliseconds{random % static_cast<std::uint64_t>(base.count())};
}

} // namespace troupe
