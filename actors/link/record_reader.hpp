#pragma once

#include "messages/proto/wire.pb.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// The records that a peer may send now.
struct record_limits {
  /// Only a greeting, which is short, because the peer has not identified itself yet.
  bool only_greeting = false;
  /// No record: all records wait in the buffer until the owner allows them.
  bool none = false;
  /// Largest body of a message, in bytes.
  std::uint64_t max_body = 0;
};

/// Cuts the bytes of a connection into records (stream_records.hpp). This is a plain object,
/// without a socket: the owner reads bytes into room(), and takes records. The result does not
/// depend on how many bytes arrive at once. Memory is bounded. The buffer grows only for a head
/// that does not fit, and only when it is full of bytes that have arrived. It then grows to at most
/// twice its size, and never beyond the size of this head and its header. So a peer that announces
/// a large head, but does not send it, cannot make the buffer large.
class record_reader {
public:
  static constexpr std::size_t max_greeting_bytes = 256;

  struct record {
    proto::RecordKind kind = proto::RECORD_UNSET;
    /// Valid until the next call of another function.
    std::span<const char> head;
    /// Bytes of the body, which follow.
    std::uint64_t body = 0;
  };

  enum class result : std::uint8_t {
    found,
    /// More bytes are needed, or records must wait.
    none,
    /// The peer must not send this record. No later record can be read either.
    misfit,
  };

  explicit record_reader(std::size_t bytes) : buffer_(bytes) {}

  /// The place for the next bytes of the connection. Empty if the buffer is full of records that
  /// wait.
  std::span<char> room() noexcept { return std::span{buffer_}.subspan(end_); }

  /// Reports that this number of bytes was written to room().
  void add(std::size_t bytes) noexcept { end_ += bytes; }

  /// Takes the header and the head of the next record. If it has a body, take() must follow.
  result next(const record_limits& limits, record& x);

  /// Copies the bytes of a body that have arrived already to the beginning of `body`. Returns their
  /// number. The caller reads the rest from the connection.
  std::size_t take(std::span<std::byte> body) noexcept;

  /// Forgets all bytes.
  void clear() noexcept { begin_ = end_ = 0; }

private:
  void make_room(std::size_t wanted);

  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

/// Divides the head of a message into its frame and its encoded content. Nothing if the frame
/// cannot be decoded, or contradicts the body.
/// @param has_body true if a payload follows the head
std::optional<std::span<const char>> split_message(std::span<const char> head, bool has_body,
                                                   proto::Frame& frame);

} // namespace troupe
