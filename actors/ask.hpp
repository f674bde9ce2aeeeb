#pragma once

#include "messages/caf_shim.hpp"

#include <chrono>
#include <cstddef>
#include <functional>

namespace troupe {

/// How long a request waits for its answer, and how often it is sent before it counts as failed. A
/// receiver recognizes a repeated request, so it does no harm to send a request again.
struct patience {
  std::chrono::milliseconds timeout{10'000};
  int attempts = 3;

  /// For a request with a large payload: adds one second per MiB to the timeout, because links may
  /// be slow.
  patience for_bytes(std::size_t bytes) const noexcept {
    return {timeout + std::chrono::seconds{bytes >> 20}, attempts};
  }

  /// For a request with a large payload: makes only one attempt, so that the payload is never sent
  /// twice. This attempt gets the time of all attempts together, plus one second per MiB.
  patience once(std::size_t bytes) const noexcept {
    return {timeout * attempts + std::chrono::seconds{bytes >> 20}, 1};
  }
};

/// Sends a request. If no answer arrives before the timeout, sends it again, until all attempts are
/// used. Exactly one of the handlers is called, in the actor `self`. For a request with a large
/// payload, use `patience::once`.
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
