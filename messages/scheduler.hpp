#pragma once

#include <caf/fwd.hpp>

namespace troupe {

/// Makes the system use a scheduler that wakes fewer threads. If an actor on a thread of the
/// scheduler wakes another actor, that actor runs on the same thread, as soon as the first one has
/// handled its messages. The reason: waking a thread takes longer than most actors need for a
/// message. If the first actor takes long because it computes, another thread is woken. Requests do
/// not wake the thread of the clock.
void load_scheduler(caf::actor_system_config& cfg);

/// While it exists, actors that this thread wakes run at once on this thread, not on a thread of
/// the scheduler. The same holds for actors that those actors wake. Actors with their own thread
/// are not affected. Has an effect only with the scheduler of load_scheduler().
///
/// They compute in the usual floating-point mode, even if this thread has changed it. The thread
/// must not hold a mutex that any of these actors could lock.
class receivers_run_here {
public:
  receivers_run_here() noexcept;
  ~receivers_run_here();
  receivers_run_here(const receivers_run_here&) = delete;
  receivers_run_here& operator=(const receivers_run_here&) = delete;

private:
  bool before_;
};

/// Forgets how long actors have computed on this thread. An actor calls this after a computation,
/// before it sends its results: the actors that it wakes then run on this thread, too.
void renew_turn() noexcept;

/// Moves actors that wait for this thread to threads of the scheduler. An actor calls this before
/// it computes for long.
void hand_over_receivers(caf::actor_system& sys);

} // namespace troupe
