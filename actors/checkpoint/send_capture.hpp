#pragma once

#include "actors/ask.hpp"
#include "messages/interfaces.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace troupe {

namespace detail {

/// Sends one part, once. If no answer comes, asks whether the part is still wanted (the header,
/// without the payload) before it is sent again.
template <class Self>
void send_part(Self* self, const coordinator_actor& to, patience how, proto::CheckpointPart header,
               payload data, std::function<void()> then) {
  auto again = [=](const caf::error& error) {
    if (error != caf::sec::request_timeout || how.attempts <= 1) {
      then();
      return;
    }
    ask(
      self, to, how,
      [=](const proto::Ack&) {
        send_part(self, to, {how.timeout, how.attempts - 1}, header, data, then);
      },
      [then](const caf::error&) { then(); }, header, payload{});
  };
  ask(
    self, to, patience{how.for_bytes(data.size()).timeout, 1},
    [then](const proto::Ack&) { then(); }, again, header, data);
}

} // namespace detail

/// Sends the state that the actor `self` holds at a version of the weights to the coordinator: one
/// payload per slot. `then` is called once, in the actor, when all payloads have arrived or were
/// given up. It does not wait until the capture is written or evaluated.
template <class Self>
void send_capture(Self* self, const coordinator_actor& to, patience how,
                  proto::CheckpointPart header, const std::vector<payload>& slots,
                  std::function<void()> then) {
  auto missing = std::make_shared<std::size_t>(slots.size());
  const auto one_less = [missing, then] {
    if (--*missing == 0)
      then();
  };
  for (std::size_t i = 0; i < slots.size(); ++i) {
    header.set_slot(static_cast<std::uint32_t>(i));
    detail::send_part(self, to, how, header, slots[i], one_less);
  }
}

} // namespace troupe
