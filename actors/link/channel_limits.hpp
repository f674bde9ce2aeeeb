#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace troupe {

/// The limits of a channel. The peer is the process at its other end.
struct channel_limits {
  /// How many bytes may wait for the peer. A byte waits if it is not yet written, not yet
  /// acknowledged, or lent to the peer in shared memory. If a message to the peer would exceed the
  /// limit, the channel ends. If no byte waits, the message may have any size.
  std::uint64_t window = std::uint64_t{1} << 36;
  /// Largest payload that the peer may send, in bytes. The peer announces the size of a payload
  /// first. If the size exceeds the limit, the channel ends before it allocates memory.
  std::uint64_t max_bytes = std::uint64_t{1} << 36;
  /// How long a connection between hosts may stay broken before its channel ends. If no time is
  /// set, stream_channel::limit() keeps the previous time.
  std::optional<std::chrono::milliseconds> grace = std::nullopt;
};

} // namespace troupe
