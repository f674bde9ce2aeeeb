#pragma once

#include "kernels/function_ref.hpp"
#include "messages/scheduler.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>

namespace troupe {

/// An actor with its own thread. When it sends a message to an idle actor that has no thread of its
/// own, that actor runs on this thread too (receivers_run_here).
template <class Actor>
class on_own_thread final : public Actor {
public:
  using Actor::Actor;

  caf::resumable::resume_result resume(caf::execution_unit* unit, std::size_t messages) override {
    const receivers_run_here here;
    return Actor::resume(unit, messages);
  }
};

/// The work that the thread of an actor does while the actor has no messages. Thread-safe.
class idle_task {
public:
  virtual ~idle_task() = default;

  /// Works until done() is true, or returns earlier.
  /// @param done called at the beginning, after each piece of work, and after interrupt()
  virtual void run_until(function_ref<bool()> done) = 0;

  /// Makes run_until() on another thread call done() soon.
  virtual void interrupt() = 0;
};

/// An actor with its own thread. While the actor waits for messages, the thread runs an idle_task.
template <class Actor>
class busy_between_messages final : public Actor {
public:
  /// @param idle may be null
  template <class... Args>
  busy_between_messages(caf::actor_config& cfg, std::shared_ptr<idle_task> idle, Args&&... args)
    : Actor(cfg, std::forward<Args>(args)...), idle_(std::move(idle)) {}

  caf::resumable::resume_result resume(caf::execution_unit* unit, std::size_t messages) override {
    const receivers_run_here here;
    const auto result = Actor::resume(unit, messages);
    if (idle_ && result == caf::resumable::awaiting_message) {
      own_ = std::this_thread::get_id();
      waits_ = true;
      idle_->run_until([this] { return !this->mailbox().blocked(); });
      waits_ = false;
    }
    return result;
  }

  // A message that arrives just before run_until() is not overlooked. Either run_until() finds it
  // in the mailbox, or `waits_` is already true, and this function interrupts run_until().
  void enqueue(caf::mailbox_element_ptr what, caf::execution_unit* unit) override {
    Actor::enqueue(std::move(what), unit);
    if (waits_ && own_.load() != std::this_thread::get_id())
      idle_->interrupt();
  }

private:
  std::shared_ptr<idle_task> idle_;
  std::atomic<bool> waits_ = false;
  /// The actor's thread, while it runs the idle_task.
  std::atomic<std::thread::id> own_;
};

/// An actor with little work per message: the work takes less time than waking another thread
/// twice. The actor runs on the thread that delivers a message. If many messages arrive at once, it
/// continues on another thread.
template <class Actor>
class in_short_turns final : public Actor {
public:
  /// The largest number of messages that the actor handles before it continues on another thread.
  /// Enough for a step with two workers, each of which pushes and commits a gradient.
  static constexpr std::size_t most_messages = 6;

  using Actor::Actor;

  caf::resumable::resume_result resume(caf::execution_unit* unit, std::size_t messages) override {
    return Actor::resume(unit, std::min(messages, most_messages));
  }
};

/// Decides on which thread an actor runs; the actor itself does not know. In production, actors
/// that compute or use a disk or device get their own thread. In a simulation, no actor has its own
/// thread: all actors run under the test scheduler.
class spawner {
public:
  enum class kind { threads, cooperative };

  /// @param idle what the threads of spawn_computing() do between messages; may be null
  explicit spawner(kind how = kind::threads, std::shared_ptr<idle_task> idle = nullptr)
    : how_(how), idle_(std::move(idle)) {}

  /// For actors that block or compute. Each has its own thread.
  template <class Actor, class... Args>
  auto spawn_heavy(caf::actor_system& sys, Args&&... args) const {
    return how_ == kind::threads
      ? sys.spawn<on_own_thread<Actor>, caf::detached>(std::forward<Args>(args)...)
      : sys.spawn<Actor>(std::forward<Args>(args)...);
  }

  /// For an actor that computes, and waits for messages from other processes between computations.
  /// Its thread runs the idle_task while the actor waits.
  template <class Actor, class... Args>
  auto spawn_computing(caf::actor_system& sys, Args&&... args) const {
    return how_ == kind::threads
      ? sys.spawn<busy_between_messages<Actor>, caf::detached>(idle_, std::forward<Args>(args)...)
      : sys.spawn<Actor>(std::forward<Args>(args)...);
  }

  /// For actors that compute, but never for longer than a fraction of a millisecond.
  template <class Actor, class... Args>
  auto spawn_brief(caf::actor_system& sys, Args&&... args) const {
    return how_ == kind::threads ? sys.spawn<in_short_turns<Actor>>(std::forward<Args>(args)...)
                                 : sys.spawn<Actor>(std::forward<Args>(args)...);
  }

  /// For actors that neither block nor compute. They have no thread of their own.
  template <class Actor, class... Args>
  auto spawn_light(caf::actor_system& sys, Args&&... args) const {
    return sys.spawn<Actor>(std::forward<Args>(args)...);
  }

private:
  kind how_;
  std::shared_ptr<idle_task> idle_;
};

} // namespace troupe
