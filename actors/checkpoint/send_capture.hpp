#pragma once

#include "actors/ask.hpp"
#include "messages/interfaces.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace troupe {

/// Sends what the actor `self` holds at a version of the weights to the coordinator: one payload
/// per slot. `then` is called once, in the actor, when the checkpoint is written or will not be.
template <class Self>
void send_capture(Self* self, const coordinator_actor& to, patience how,
                  proto::CheckpointPart header, const std::vector<payload>& slots,
                  std::function<void()> then) {
  std::size_t bytes = 0;
  for (auto& x : slots)
    bytes += x.size();
  how = how.for_bytes(bytes);
  auto missing = std::make_shared<std::size_t>(slots.size());
  const auto one_less = [missing, then] {
    if (--*missing == 0)
      then();
  };
  for (std::size_t i = 0; i < slots.size(); ++i) {
    header.set_slot(static_cast<std::uint32_t>(i));
    ask(
      self, to, how, [one_less](const proto::Ack&) { one_less(); },
      [one_less](const caf::error&) { one_less(); }, header, slots[i]);
  }
}

} // namespace troupe
