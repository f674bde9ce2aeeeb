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
  /// If true, the peer may only send a greeting, because it has not identified itself yet. A
  /// greeting has at most max_greeting_bytes.
  bool only_greeting = false;
  /// If true, next() returns no record: all bytes wait in the buffer until the owner allows
  /// records.
  bool none = false;
  /// Largest body of a message, in bytes.
  std::uint64_t max_body = 0;
};

/// Cuts the bytes of a connection into records (stream_records.hpp). This is a plain object without
/// a socket: the owner reads bytes into room(), and takes records with next(). The result does not
/// depend on how many bytes arrive at once.
///
/// A record is a header, a head (an encoded message) and sometimes a body (a payload). The buffer
/// grows only if it is full and the head of the next record does not fit. It then grows to at most
/// twice its size, and never beyond the size of this header and head. So a peer that announces a
/// large head, but does not send it, cannot make the buffer large.
class record_reader {
public:
  static constexpr std::size_t max_greeting_bytes = 256;

  struct record {
    proto::RecordKind kind = proto::RECORD_UNSET;
    /// Valid until the next call of another function.
    std::span<const char> head;
    /// The size of the body in bytes. The body follows: see take().
    std::uint64_t body = 0;
  };

  enum class result : std::uint8_t {
    found,
    /// No complete record has arrived, or record_limits::none is set.
    none,
    /// The peer has sent a record that the limits forbid. No later record can be read either.
    misfit,
  };

  explicit record_reader(std::size_t bytes) : buffer_(bytes) {}

  /// The free part of the buffer, for the next bytes of the connection. Empty if the buffer is full
  /// of records that wait.
  std::span<char> room() noexcept { return std::span{buffer_}.subspan(end_); }

  /// Reports that this number of bytes was written to room().
  void add(std::size_t bytes) noexcept { end_ += bytes; }

  /// Takes the next record from the buffer, without its body (payload). If the record has a body,
  /// the caller must then call take().
  result next(const record_limits& limits, record& x);

  /// Copies the bytes of the record's body that have already arrived to the beginning of `body`.
  /// Returns their number. The caller reads the rest from the connection.
  std::size_t take(std::span<std::byte> body) noexcept;

  /// Discards all bytes in the buffer.
  void clear() noexcept { begin_ = end_ = 0; }

private:
  void make_room(std::size_t wanted);

  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

/// Decodes the frame at the beginning of a message's head. Returns the rest of the head: the
/// encoded content. Returns nothing if the frame cannot be decoded, or if it announces a loan
/// although a body follows.
/// @param has_body true if a body (a payload) follows the head
std::optional<std::span<const char>> split_message(std::span<const char> head, bool has_body,
                                                   proto::Frame& frame);

} // namespace troupe
