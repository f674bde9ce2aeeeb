#include "apps/troupe/stop_signals.hpp"

namespace troupe {

sigset_t stop_signals() {
  sigset_t result;
  sigemptyset(&result);
  sigaddset(&result, SIGINT);
  sigaddset(&result, SIGTERM);
  return result;
}

void block_stop_signals() {
  const auto signals = stop_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

stop_signals_end_process::stop_signals_end_process() {
  const auto signals = stop_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &signals, &before_);
}

stop_signals_end_process::~stop_signals_end_process() {
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

} // namespace troupe
