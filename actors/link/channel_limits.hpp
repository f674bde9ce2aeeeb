#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace troupe {

/// What a channel allows its peer.
struct channel_limits {
  /// Bytes that may wait for the peer: not written, not acknowledged, or lent to it. The channel
  /// fails at the message that exceeds the limit, unless nothing else waits.
  std::uint64_t window = std::uint64_t{1} << 36;
  /// Size of a payload that the peer may send. Memory is allocated as soon as a payload is
  /// announced. The channel fails at an announcement that exceeds the limit.
  std::uint64_t max_bytes = std::uint64_t{1} << 36;
  /// How long a connection between hosts may stay broken before its channel is given up. Without a
  /// value, limit() keeps the previous one.
  std::optional<std::chrono::milliseconds> grace = std::nullopt;
};

} // namespace troupe
