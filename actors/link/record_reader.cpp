#include "actors/link/record_reader.hpp"

#include "actors/link/stream_records.hpp"

#include <algorithm>
#include <cstring>

namespace troupe {

record_reader::result record_reader::next(const record_limits& limits, record& x) {
  const auto there = end_ - begin_;
  auto wanted = records::header_bytes;
  if (there >= wanted && !limits.none) {
    const char* at = buffer_.data() + begin_;
    const auto kind = records::get<std::uint32_t>(at);
    const auto head = records::get<std::uint32_t>(at + 4);
    const auto body = records::get<std::uint64_t>(at + 8);
    const bool fits = head <= (limits.only_greeting ? max_greeting_bytes : records::max_head_bytes)
      && body <= limits.max_body && (body == 0 || kind == proto::MESSAGE)
      && (!limits.only_greeting || kind == proto::GREETING);
    if (!fits)
      return result::misfit;
    wanted += head;
    if (there >= wanted) {
      begin_ += wanted;
      x = {static_cast<proto::RecordKind>(kind), {at + records::header_bytes, head}, body};
      return result::found;
    }
  }
  make_room(wanted);
  return result::none;
}

std::size_t record_reader::take(std::span<std::byte> body) noexcept {
  const auto n = std::min(body.size(), end_ - begin_);
  if (n > 0)
    std::memcpy(body.data(), buffer_.data() + begin_, n);
  begin_ += n;
  return n;
}

// Moves the remaining bytes to the beginning of the buffer. If they fill the buffer, and the next
// record needs `wanted` bytes, the buffer grows, but to at most twice its size: the peer may have
// announced many bytes that it never sends.
void record_reader::make_room(std::size_t wanted) {
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  if (end_ == buffer_.size() && end_ < wanted)
    buffer_.resize(std::min(wanted, 2 * std::max(end_, records::header_bytes)));
}

std::optional<std::span<const char>> split_message(std::span<const char> head, bool has_body,
                                                   proto::Frame& frame) {
  if (head.size() < 4)
    return std::nullopt;
  const auto bytes = records::get<std::uint32_t>(head.data());
  const auto rest = head.subspan(4);
  if (bytes > rest.size() || !frame.ParseFromArray(rest.data(), static_cast<int>(bytes))
      || !proto::Frame::Kind_IsValid(frame.kind()) || (frame.has_loan() && has_body))
    return std::nullopt;
  return rest.subspan(bytes);
}

} // namespace troupe
