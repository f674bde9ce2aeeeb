#pragma once

#include <caf/fwd.hpp>

namespace troupe {

/// Makes the system use a scheduler that wakes fewer threads: an actor woken by another actor on a
/// thread of the scheduler runs on this thread, as soon as the other one has handled its messages.
/// Waking another thread takes longer than most actors need for a message. If the other one takes
/// long, because it computes, another thread is woken. Requests do not wake the thread of the
/// clock.
void load_scheduler(caf::actor_system_config& cfg);

/// While it exists, actors that this thread wakes run on this thread, at once, instead of on a
/// thread of the scheduler. So do actors that those wake. Actors with a thread of their own are not
/// affected. Has an effect only with the scheduler of load_scheduler().
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

/// The time that the actors before have computed on this thread does not count any more: those that
/// are woken next run here, too. For an actor that has computed, and now passes on its results.
void renew_turn() noexcept;

/// Actors that this thread has woken and that still wait for it run on threads of the scheduler.
/// For an actor that is about to compute for long.
void hand_over_receivers(caf::actor_system& sys);

} // namespace troupe
