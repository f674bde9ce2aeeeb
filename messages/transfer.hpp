#pragma once

#include "messages/buffer.hpp"

#include <cstdint>
#include <optional>

// The only layer that knows about chunks. If a payload is too large for one frame, the frame
// announces it, and chunks follow in order. The sender stays at most a window ahead of the bytes
// that the receiver has taken. These classes are plain state: links pass messages to them.

namespace troupe {

struct transfer_limits {
  /// Bytes per chunk. A chunk delays everything behind it on the same connection.
  std::size_t chunk_bytes = std::size_t{1} << 20;
  /// The most chunks in flight. This bounds the queue in the sender's connection if the receiver is
  /// slow.
  std::size_t window = 4;
  /// The largest payload that is accepted from a peer.
  std::size_t max_bytes = std::size_t{1} << 36;
};

/// The sending side. It holds the payload until the last credit arrives.
class outgoing_transfer {
public:
  struct chunk {
    std::uint64_t offset;
    payload data;
  };

  outgoing_transfer(payload data, const transfer_limits& limits);

  /// The next chunk that may be sent now; empty if there is none.
  std::optional<chunk> next();

  /// Notes that the receiver has taken all bytes before `received`. False if that is impossible:
  /// more than was sent, or less than an earlier credit.
  bool credit(std::uint64_t received);

  bool done() const noexcept { return acknowledged_ == data_.size(); }

private:
  payload data_;
  std::size_t chunk_bytes_;
  std::size_t window_bytes_;
  std::uint64_t sent_ = 0;
  std::uint64_t acknowledged_ = 0;
};

/// The receiving side. It assembles the payload in one buffer.
class incoming_transfer {
public:
  explicit incoming_transfer(std::size_t bytes);

  /// Takes a chunk. False if it is empty, does not continue the received bytes, or exceeds the
  /// announced size.
  bool accept(std::uint64_t offset, const payload& data);

  std::uint64_t received() const noexcept { return received_; }
  bool complete() const noexcept { return received_ == data_.size(); }

  /// The whole payload. Call it once all bytes have arrived.
  payload take() { return std::move(data_); }

private:
  payload data_;
  std::uint64_t received_ = 0;
};

} // namespace troupe
