#pragma once

#include <caf/fwd.hpp>

namespace troupe {

/// Makes the system use a scheduler that wakes fewer threads, because waking a thread takes longer
/// than most actors need for a message. If an actor on a thread of the scheduler wakes another
/// actor, the other actor runs on the same thread, as soon as the first one has handled its
/// messages. If actors have run on this thread for longer than 50 microseconds in a row, the
/// scheduler wakes another thread for the other actor. A request wakes the thread of the clock only
/// if its deadline is earlier than all others.
void load_scheduler(caf::actor_system_config& cfg);

/// While an object of this class exists, actors that this thread wakes run at once on this thread,
/// not on a thread of the scheduler. Actors that those actors wake run here, too. But if actors
/// have run here for 50 microseconds in a row, the actors that they wake run on threads of the
/// scheduler. Actors with their own thread are not affected. The class has an effect only with the
/// scheduler of load_scheduler().
///
/// The actors compute in the usual floating-point mode, even if this thread has changed its mode.
/// The thread must not hold a mutex that any of these actors could lock.
class receivers_run_here {
public:
  receivers_run_here() noexcept;
  ~receivers_run_here();
  receivers_run_here(const receivers_run_here&) = delete;
  receivers_run_here& operator=(const receivers_run_here&) = delete;

private:
  bool before_;
};

/// Forgets for how long actors have already run on this thread. An actor calls this after a
/// computation, before it sends its results. The actors that it wakes then run on this thread, too.
void renew_turn() noexcept;

/// Moves the actors that wait for this thread to the threads of the scheduler. An actor calls this
/// before a long computation, so that the other actors need not wait for it.
void hand_over_receivers(caf::actor_system& sys);

} // namespace troupe
