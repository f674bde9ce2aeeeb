#pragma once

#include "actors/link/port.hpp"
#include "actors/payload_meter.hpp"
#include "messages/caf_shim.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

namespace troupe {

/// How long a request waits for its answer, and how often it is sent before it counts as failed. A
/// receiver recognizes a repeated request, so it does no harm to send a request again.
///
/// The time in which payloads travel does not count: see ask().
struct patience {
  std::chrono::milliseconds timeout{10'000};
  int attempts = 3;
  /// The field of the job that sets the timeout. Null if no field sets it.
  const char* field = "runtime.request_timeout_ms";
  /// The size of the payloads of request and answer.
  std::size_t bytes = 0;

  /// For a request with a large payload: adds one second per 64 MiB to the timeout, because the
  /// receiver needs time to handle the payload.
  patience for_bytes(std::size_t n) const noexcept {
    return {timeout + std::chrono::seconds{n >> 26}, attempts, field, n};
  }

  /// Like for_bytes(), but makes only one attempt, so that the payload is never sent twice. This
  /// attempt gets the time of all attempts together.
  patience once(std::size_t n) const noexcept {
    return {all() + std::chrono::seconds{n >> 26}, 1, field, n};
  }

  /// The time of all attempts together.
  std::chrono::milliseconds all() const noexcept { return timeout * attempts; }

  /// The longest time that a request may take while payloads move. Payloads of others may move on
  /// the same link for ever, and the receiver may hang.
  std::chrono::milliseconds longest() const noexcept {
    return 10 * all() + std::chrono::minutes{bytes >> 20};
  }
};

namespace detail {

/// The error of a request that has no answer after the time of all attempts.
caf::error no_answer(const patience& how);
/// The error of a request that has no answer after patience::longest().
caf::error no_answer_at_all(std::chrono::milliseconds longest);

/// The framework keeps the timer of a request until its end, even after the answer. So timers are
/// short, and are set again.
inline constexpr std::chrono::milliseconds longest_timer{10'000};

/// Handles the error of a request. If a timer has ended, but not yet the deadline, sets the timer
/// again. The deadline is `limit` after the request was sent, or after the last byte of a payload
/// has moved on the link.
template <class Self, class Then>
struct late_answer {
  Self* self;
  caf::message_id request;
  /// Null if the receiver is in this process.
  std::shared_ptr<const payload_meter> link;
  std::chrono::steady_clock::time_point sent;
  std::chrono::milliseconds limit;
  std::chrono::milliseconds longest;
  Then then;
  std::function<void(const caf::error&)> fail;

  void operator()(caf::error& error) const {
    if (error != caf::sec::request_timeout) {
      fail(error);
      return;
    }
    const auto now = self->clock().now();
    const auto until = (link ? std::max(sent, link->moved()) : sent) + limit;
    if (until <= now) {
      fail(error);
    } else if (now - sent >= longest) {
      fail(no_answer_at_all(longest));
    } else {
      self->clock().set_request_timeout(std::min({until, sent + longest, now + longest_timer}),
                                        self, request);
      self->add_multiplexed_response_handler(request, caf::behavior{then, *this});
    }
  }
};

/// Sends a request once. If no answer comes, calls `fail` with sec::request_timeout, or with
/// no_answer_at_all().
template <class Self, class Handle, class Then, class... In>
void send_request(Self* self, const Handle& receiver, std::chrono::milliseconds limit,
                  std::chrono::milliseconds longest, Then then,
                  std::function<void(const caf::error&)> fail, const In&... in) {
  const auto* to = port_of(receiver);
  const auto now = self->clock().now();
  auto sent = self->request(receiver, std::min(limit, longest_timer), in...);
  late_answer<Self, Then> late{
    self,           sent.id(), to ? to->meter() : nullptr, now, limit, longest, std::move(then),
    std::move(fail)};
  sent.then(late.then, late);
}

/// Passes an error on. If the request had no answer, the error says what the operator can do.
inline auto explained(std::function<void(const caf::error&)> fail, const patience& how) {
  return [fail = std::move(fail), how](const caf::error& error) {
    fail(error == caf::sec::request_timeout ? no_answer(how) : error);
  };
}

/// Sends a request up to `attempts` times.
template <class Self, class Handle, class Then, class... In>
void ask_again(Self* self, const Handle& receiver, patience how, Then then,
               std::function<void(const caf::error&)> fail, const In&... in) {
  auto failed = [=](const caf::error& error) {
    auto next = how;
    if (error == caf::sec::request_timeout && --next.attempts > 0)
      ask_again(self, receiver, next, then, fail, in...);
    else
      fail(error);
  };
  send_request(self, receiver, how.timeout, how.longest(), then, std::move(failed), in...);
}

} // namespace detail

/// Makes the first attempt of ask(). If the message may be lost on its way, and no answer comes in
/// time, calls `fail` with sec::request_timeout. The caller can then send the request again.
template <class Self, class Handle, class Then, class... In>
void try_ask(Self* self, const Handle& receiver, patience how, Then then,
             std::function<void(const caf::error&)> fail, const In&... in) {
  if (is_delivered(receiver))
    detail::send_request(self, receiver, how.all(), how.longest(), std::move(then),
                         detail::explained(std::move(fail), how), in...);
  else
    detail::send_request(self, receiver, how.timeout, how.longest(), std::move(then),
                         std::move(fail), in...);
}

/// Sends a request. If no answer arrives before the timeout, sends it again, until all attempts are
/// used. If no message can be lost on the way to the receiver, the request is sent only once, and
/// this attempt gets the time of all attempts together. Exactly one of the handlers is called, in
/// the actor `self`.
///
/// While a large payload moves on the link, in either direction, the time does not run. All
/// messages of a link travel in order, so the request or its answer may be in this payload, or may
/// wait behind it. A transfer that makes progress therefore is not started again, and does not fail
/// before patience::longest().
template <class Self, class Handle, class Then, class... In>
void ask(Self* self, const Handle& receiver, patience how, Then then,
         std::function<void(const caf::error&)> fail, const In&... in) {
  auto failed = detail::explained(std::move(fail), how);
  if (is_delivered(receiver))
    detail::send_request(self, receiver, how.all(), how.longest(), std::move(then),
                         std::move(failed), in...);
  else
    detail::ask_again(self, receiver, how, std::move(then), std::move(failed), in...);
}

} // namespace troupe
