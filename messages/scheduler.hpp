#pragma once

#include <caf/fwd.hpp>

namespace troupe {

/// Makes the system use a scheduler that wakes fewer threads, because waking a thread takes longer
/// than most actors need for a message. If actor A runs on a thread of the scheduler and wakes
/// actor B, then B runs on the same thread, after A has handled its messages. But if actors have
/// run on this thread for longer than 50 microseconds in a row, the scheduler wakes another thread
/// for B. A request wakes the thread of the clock only if its deadline is earlier than all others.
void load_scheduler(caf::actor_system_config& cfg);

/// While an object of this class exists, an actor that this thread wakes runs at once on this
/// thread, not on a thread of the scheduler. If such an actor wakes further actors, these run on
/// this thread, too. But after actors have run here for 50 microseconds in a row, the scheduler's
/// threads run the actors that are woken next. Actors with their own thread are not affected. The
/// class has an effect only with the scheduler of load_scheduler().
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

/// Begins a new count of the time for which actors have run on this thread (see
/// receivers_run_here). An actor calls this after a computation, before it sends its results. The
/// receivers of the results then run on this thread, too.
void renew_turn() noexcept;

/// Moves the actors that wait for this thread to the threads of the scheduler. An actor calls this
/// before a long computation, so that the other actors need not wait for it.
void hand_over_receivers(caf::actor_system& sys);

} // namespace troupe
