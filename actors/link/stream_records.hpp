#pragma once

#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <cstring>
#include <vector>

/// The records of a stream_channel on its socket: a header, a *head* (an encoded message), and,
/// only for a message, the *body* (its payload).
///
///   bytes  0..3   proto::RecordKind
///          4..7   bytes of the head
///          8..15  bytes of the body
///
/// The numbers in the header are in the byte order of the machine.
namespace troupe::records {

inline constexpr std::size_t header_bytes = 16;
inline constexpr std::size_t max_head_bytes = std::size_t{16} << 20;

template <class T>
void put(char* to, T x) {
  std::memcpy(to, &x, sizeof x);
}

template <class T>
T get(const char* from) {
  T result{};
  std::memcpy(&result, from, sizeof result);
  return result;
}

/// Writes the header into a record that already contains its head.
/// @param body bytes of the body, which is not part of `record`
inline void put_header(std::vector<char>& record, proto::RecordKind kind, std::uint64_t body) {
  put(record.data(), static_cast<std::uint32_t>(kind));
  put(record.data() + 4, static_cast<std::uint32_t>(record.size() - header_bytes));
  put(record.data() + 8, body);
}

/// Makes a record without a body.
inline std::vector<char> make(proto::RecordKind kind, const google::protobuf::MessageLite& head) {
  std::vector<char> result(header_bytes + head.ByteSizeLong());
  head.SerializeWithCachedSizesToArray(
    reinterpret_cast<std::uint8_t*>(result.data() + header_bytes));
  put_header(result, kind, 0);
  return result;
}

/// Makes a record without a head or a body.
inline std::vector<char> make(proto::RecordKind kind) {
  std::vector<char> result(header_bytes);
  put_header(result, kind, 0);
  return result;
}

} // namespace troupe::records
