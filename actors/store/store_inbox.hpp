#pragma once

#include "messages/caf_shim.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace troupe {

/// Sends requests for a thread that is not an actor, and keeps the answers for this thread. The
/// thread that delivers an answer stores it here directly; the actor framework queues and schedules
/// nothing. Only one thread at a time may ask and wait.
class store_inbox : public caf::actor_proxy {
public:
  using clock = std::chrono::steady_clock;

  /// Called by inbox_owner.
  using caf::actor_proxy::actor_proxy;
  ~store_inbox() override;

  /// Sends a request, and returns its number for take() or forget().
  std::uint64_t ask(const caf::strong_actor_ptr& receiver, caf::message request);

  /// True if take() would return at once.
  bool has(std::uint64_t number);

  /// Waits for the answer, which may be an error. Returns nothing if none arrives before
  /// `deadline`.
  std::optional<caf::message> take(std::uint64_t number, clock::time_point deadline);

  /// Drops the answer, now or when it arrives.
  void forget(std::uint64_t number);

  /// The framework calls this with an answer.
  void enqueue(caf::mailbox_element_ptr what, caf::execution_unit* context) override;
  void kill_proxy(caf::execution_unit* context, caf::error reason) override;

private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::uint64_t last_ = 0;
  /// The number of the request whose answer the thread waits for; 0 if it does not wait. Other
  /// answers do not wake it.
  std::uint64_t awaited_ = 0;
  /// The answers, by number of the request. Each is empty until it arrives.
  std::map<std::uint64_t, std::optional<caf::message>> answers_;
};

/// Owns an inbox. The destructor ends it.
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
