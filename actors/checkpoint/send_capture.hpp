#pragma once

#include "actors/ask.hpp"
#include "messages/interfaces.hpp"

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace troupe {

/// One payload of a capture. A capture is the state of a shard or rank at one version of the
/// weights.
struct captured {
  std::uint32_t part = 0;
  std::uint32_t slot = 0;
  payload data;
};

/// The payloads of a part, one for each slot. Slots are numbered from 0.
inline std::vector<captured> slots_of(std::uint32_t part, std::vector<payload> slots) {
  std::vector<captured> result;
  for (auto& x : slots)
    result.push_back({part, static_cast<std::uint32_t>(result.size()), std::move(x)});
  return result;
}

namespace detail {

/// Sends one payload. If no answer comes, this function sends only the header, to ask whether the
/// coordinator still needs the payload. If it does, the function sends the payload again.
template <class Self>
void send_part(Self* self, const coordinator_actor& to, patience how, proto::CheckpointPart header,
               payload data, std::function<void(bool)> then) {
  auto again = [=](const caf::error& error) {
    if (error != caf::sec::request_timeout || how.attempts <= 1) {
      then(false);
      return;
    }
    ask(
      self, to, how,
      [=](const proto::Ack&) {
        send_part(self, to, {how.timeout, how.attempts - 1, how.field}, header, data, then);
      },
      [then](const caf::error&) { then(false); }, header, payload{});
  };
  try_ask(
    self, to, how.for_bytes(data.size()), [then](const proto::Ack&) { then(true); }, again, header,
    data);
}

} // namespace detail

/// Sends the state that the actor `self` holds at a version of the weights to the coordinator.
/// `header` has the fields that all payloads share. `then` is called once, in the actor, after the
/// last payload has arrived or was given up. Its argument is true if the coordinator has taken all
/// payloads. The call does not wait until the capture is written or evaluated.
template <class Self>
void send_capture(Self* self, const coordinator_actor& to, patience how,
                  proto::CheckpointPart header, const std::vector<captured>& state,
                  std::function<void(bool)> then) {
  auto missing = std::make_shared<std::size_t>(state.size());
  const auto one_less = [missing, all = std::make_shared<bool>(true), then](bool taken) {
    *all = *all && taken;
    if (--*missing == 0)
      then(*all);
  };
  for (const auto& x : state) {
    header.set_part(x.part);
    header.set_slot(x.slot);
    detail::send_part(self, to, how, header, x.data, one_less);
  }
}

} // namespace troupe
