#pragma once

#include "messages/scheduler.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

/// An actor with its own thread. Actors that it wakes run on the same thread.
template <class Actor>
class on_own_thread final : public Actor {
public:
  using Actor::Actor;

  caf::resumable::resume_result resume(caf::execution_unit* unit, std::size_t messages) override {
    const receivers_run_here here;
    return Actor::resume(unit, messages);
  }
};

/// An actor that needs some time per message, but less than waking another thread twice would take.
/// It runs on the thread that brings a message. If many messages arrive at once, it continues on
/// another thread.
template <class Actor>
class in_short_turns final : public Actor {
public:
  /// Enough for a step with two workers, each of which pushes and commits a gradient.
  static constexpr std::size_t most_messages = 6;

  using Actor::Actor;

  caf::resumable::resume_result resume(caf::execution_unit* unit, std::size_t messages) override {
    return Actor::resume(unit, std::min(messages, most_messages));
  }
};

/// Decides on which thread an actor runs; the actor itself does not know. In production, actors
/// that compute or use a disk or device get their own thread. In a simulation, all actors are
/// cooperative and run under the test scheduler.
class spawner {
public:
  enum class kind { threads, cooperative };

  explicit spawner(kind how = kind::threads) : how_(how) {}

  /// For actors that block or compute.
  template <class Actor, class... Args>
  auto spawn_heavy(caf::actor_system& sys, Args&&... args) const {
    return how_ == kind::threads
      ? sys.spawn<on_own_thread<Actor>, caf::detached>(std::forward<Args>(args)...)
      : sys.spawn<Actor>(std::forward<Args>(args)...);
  }

  /// For actors that compute, but never for longer than a fraction of a millisecond.
  template <class Actor, class... Args>
  auto spawn_brief(caf::actor_system& sys, Args&&... args) const {
    return how_ == kind::threads ? sys.spawn<in_short_turns<Actor>>(std::forward<Args>(args)...)
                                 : sys.spawn<Actor>(std::forward<Args>(args)...);
  }

  /// For actors that only pass messages on.
  template <class Actor, class... Args>
  auto spawn_light(caf::actor_system& sys, Args&&... args) const {
    return sys.spawn<Actor>(std::forward<Args>(args)...);
  }

private:
  kind how_;
};

} // namespace troupe
