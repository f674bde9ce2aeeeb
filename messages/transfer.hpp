#pragma once

#include "messages/buffer.hpp"

#include <cstdint>
#include <optional>

// Transfers of large payloads in chunks, over links without a separate connection. If a payload is
// too large for one message, the Frame (the header of the message) announces its size, and chunks
// follow in order. The receiver confirms chunks with credits. The sender may be at most `window`
// chunks ahead of these confirmations. These classes are plain objects, not actors; a link sends
// and receives the messages.

namespace troupe {

struct transfer_limits {
  /// Bytes per chunk. Messages behind a chunk on the same connection must wait for it.
  std::size_t chunk_bytes = std::size_t{1} << 20;
  /// The largest number of chunks that are sent, but not confirmed. If the receiver is slow, this
  /// number limits the bytes that wait in the sender's connection.
  std::size_t window = 4;
  /// The largest payload, in bytes, that is accepted from a peer.
  std::size_t max_bytes = std::size_t{1} << 36;
};

/// The sending side. It keeps the payload until the last credit arrives.
class outgoing_transfer {
public:
  struct chunk {
    std::uint64_t offset;
    payload data;
  };

  outgoing_transfer(payload data, const transfer_limits& limits);

  /// The next chunk. Absent if all chunks are sent, or if the receiver must first confirm earlier
  /// chunks.
  std::optional<chunk> next();

  /// Records that the receiver has taken all bytes before `received`. Returns false if this number
  /// is impossible: larger than the number of bytes sent, or smaller than in an earlier credit.
  bool credit(std::uint64_t received);

  bool done() const noexcept { return acknowledged_ == data_.size(); }

private:
  payload data_;
  std::size_t chunk_bytes_;
  std::size_t window_bytes_;
  std::uint64_t sent_ = 0;
  std::uint64_t acknowledged_ = 0;
};

/// The receiving side. It copies all chunks into one buffer.
class incoming_transfer {
public:
  explicit incoming_transfer(std::size_t bytes);

  /// Takes a chunk. Returns false if the chunk is empty, does not follow the bytes received so far,
  /// or exceeds the announced size.
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
