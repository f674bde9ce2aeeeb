#include "actors/link/reader_turn.hpp"

namespace troupe {

void reader_turn::wait() {
  std::unique_lock lock{mutex_};
  if (!lent_)
    return;
  owner_reads_ = false;
  changed_.notify_all();
  while (lent_) {
    const auto before = takes_;
    const bool given_back = changed_.wait_for(lock, absence_, [this] { return !lent_; });
    if (!given_back && takes_ == before && !other_reads_)
      lent_ = false;
  }
  owner_reads_ = true;
}

void reader_turn::close() {
  std::unique_lock lock{mutex_};
  closed_ = true;
  changed_.wait(lock, [this] { return !other_reads_; });
}

bool reader_turn::take(function_ref<void()> interrupt) {
  std::unique_lock lock{mutex_};
  if (other_reads_ || closed_) {
    recalled_ = true;
    return false;
  }
  other_reads_ = true;
  recalled_ = false;
  ++takes_;
  lent_ = true;
  if (owner_reads_)
    interrupt();
  changed_.wait(lock, [this] { return !owner_reads_; });
  return true;
}

void reader_turn::give_back(bool now) {
  const std::lock_guard guard{mutex_};
  other_reads_ = false;
  if (now || closed_ || recalled_)
    lent_ = false;
  if (!lent_)
    changed_.notify_all();
}

void reader_turn::recall() {
  const std::lock_guard guard{mutex_};
  recalled_ = true;
  if (other_reads_ || !lent_)
    return;
  lent_ = false;
  changed_.notify_all();
}

} // namespace troupe
