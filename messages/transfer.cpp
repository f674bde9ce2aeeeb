#include "messages/transfer.hpp"

#include <algorithm>
#include <cstring>

namespace troupe {

outgoing_transfer::outgoing_transfer(payload data, const transfer_limits& limits)
  : data_(std::move(data)), chunk_bytes_(limits.chunk_bytes),
    window_bytes_(limits.chunk_bytes * limits.window) {}

std::optional<outgoing_transfer::chunk> outgoing_transfer::next() {
  const auto size = std::min<std::uint64_t>(chunk_bytes_, data_.size() - sent_);
  if (size == 0 || sent_ + size > acknowledged_ + window_bytes_)
    return std::nullopt;
  chunk result{sent_, data_.slice(sent_, size)};
  sent_ += size;
  return result;
}

bool outgoing_transfer::credit(std::uint64_t received) {
  if (received < acknowledged_ || received > sent_)
    return false;
  acknowledged_ = received;
  return true;
}

incoming_transfer::incoming_transfer(std::size_t bytes) : data_(payload::allocate(bytes)) {}

bool incoming_transfer::accept(std::uint64_t offset, const payload& data) {
  if (data.empty() || offset != received_ || data.size() > data_.size() - received_)
    return false;
  std::memcpy(data_.mutable_data() + offset, data.data(), data.size());
  received_ += data.size();
  return true;
}

} // namespace troupe
