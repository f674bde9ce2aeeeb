#pragma once

#include <csignal>

namespace troupe {

/// SIGINT and SIGTERM.
sigset_t stop_signals();

/// Blocks SIGINT and SIGTERM until a session handles them. Call this first in a command that calls
/// run_session().
void block_stop_signals();

/// While this object exists, SIGINT and SIGTERM end the process, although block_stop_signals() was
/// called. For work of the main thread that takes long and leaves nothing behind.
class stop_signals_end_process {
public:
  stop_signals_end_process();
  ~stop_signals_end_process();
  stop_signals_end_process(const stop_signals_end_process&) = delete;
  stop_signals_end_process& operator=(const stop_signals_end_process&) = delete;

private:
  sigset_t before_;
};

} // namespace troupe
