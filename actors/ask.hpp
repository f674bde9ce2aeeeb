#pragma once

#include "messages/caf_shim.hpp"

#include <chrono>
#include <cstddef>
#include <functional>

namespace troupe {

/// How long a request waits for its answer, and how often it is sent before it counts as failed.
/// Receivers recognize repeated requests, so a repetition does no harm.
struct patience {
  std::chrono::milliseconds timeout{10'000};
  int attempts = 3;

  /// For requests with large payloads: one more second per MiB, to allow for slow links.
  patience for_bytes(std::size_t bytes) const noexcept {
    return {timeout + std::chrono::seconds{bytes >> 20}, attempts};
  }

  /// For requests with a payload: a single attempt that may take as long as all attempts together,
  /// so that the payload is never sent twice.
  patience once(std::size_t bytes) const noexcept {
    return {timeout * attempts + std::chrono::seconds{bytes >> 20}, 1};
  }
};

/// Sends a request and repeats it when its deadline passes. Exactly one of the handlers is called,
/// in the actor `self`. For a request with a large payload, use `patience::once`.
template <class Self, class Handle, class Then, class... In>
void ask(Self* self, const Handle& receiver, patience how, Then then,
         std::function<void(const caf::error&)> fail, const In&... in) {
  auto again = [=](caf::error& error) {
    if (error == caf::sec::request_timeout && how.attempts > 1)
      ask(self, receiver, patience{how.timeout, how.attempts - 1}, then, fail, in...);
    else
      fail(error);
  };
  self->request(receiver, how.timeout, in...).then(then, std::move(again));
}

} // namespace troupe
