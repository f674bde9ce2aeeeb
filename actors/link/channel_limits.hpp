#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace troupe {

/// What a channel allows its peer, the process at its other end.
struct channel_limits {
  /// Bytes that may wait for the peer: not written, not acknowledged, or lent to it. If a message
  /// exceeds the limit, the channel fails. A message is always accepted if nothing else waits.
  std::uint64_t window = std::uint64_t{1} << 36;
  /// Largest payload that the peer may send. Memory is allocated as soon as a payload is announced.
  /// If the announced size exceeds the limit, the channel fails.
  std::uint64_t max_bytes = std::uint64_t{1} << 36;
  /// How long a connection between hosts may stay broken before its channel is given up. If it has
  /// no value, stream_channel::limit() keeps the previous one.
  std::optional<std::chrono::milliseconds> grace = std::nullopt;
};

} // namespace troupe
