#pragma once

#include "messages/caf_shim.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace troupe {

/// Lets a thread that is not an actor send requests and wait for the answers. Whichever thread
/// delivers an answer stores it here directly, so an answer passes through no mailbox and no
/// scheduler. Only one thread at a time may ask and wait.
class store_inbox : public caf::actor_proxy {
public:
  using clock = std::chrono::steady_clock;

  /// Only inbox_owner makes an inbox.
  using caf::actor_proxy::actor_proxy;
  ~store_inbox() override;

  /// Sends a request, and returns its number for take() or forget().
  std::uint64_t ask(const caf::strong_actor_ptr& receiver, caf::message request);

  /// True if the answer has arrived or the request is unknown: take() then returns at once.
  bool has(std::uint64_t number);

  /// Waits for the answer, which may be an error, and returns it. Returns nothing if no answer
  /// arrives before `deadline`.
  std::optional<caf::message> take(std::uint64_t number, clock::time_point deadline);

  /// Drops the answer, even if it arrives later.
  void forget(std::uint64_t number);

  /// The framework calls this with an answer.
  void enqueue(caf::mailbox_element_ptr what, caf::execution_unit* context) override;
  void kill_proxy(caf::execution_unit* context, caf::error reason) override;

private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::uint64_t last_ = 0;
  /// The number of the request whose answer the thread waits for, so that other answers do not wake
  /// the thread. 0 if the thread does not wait.
  std::uint64_t awaited_ = 0;
  /// For each request by number: the answer, once it has arrived.
  std::map<std::uint64_t, std::optional<caf::message>> answers_;
};

/// Owns an inbox. The destructor ends the inbox.
class inbox_owner {
public:
  explicit inbox_owner(caf::actor_system& sys);
  ~inbox_owner();
  inbox_owner(const inbox_owner&) = delete;
  inbox_owner& operator=(const inbox_owner&) = delete;

  store_inbox& operator*() const noexcept;
  store_inbox* operator->() const noexcept { return &**this; }

private:
  caf::strong_actor_ptr actor_;
};

} // namespace troupe
