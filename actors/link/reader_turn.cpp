#include "actors/link/reader_turn.hpp"

namespace troupe {

void reader_turn::wait() {
  std::unique_lock lock{mutex_};
  if (!lent_)
    return;
  owner_reads_ = false;
  tell(lock);
  while (lent_) {
    const auto before = takes_;
    const bool given_back = changed_.wait_for(lock, absence_, [this] { return !lent_; });
    if (!given_back && takes_ == before && !other_reads_)
      lent_ = false;
  }
  owner_reads_ = true;
}

// Notifies without holding the mutex, because the woken thread would have to wait for it.
void reader_turn::tell(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  changed_.notify_all();
  lock.lock();
}

void reader_turn::close(function_ref<void()> interrupt) {
  std::unique_lock lock{mutex_};
  closed_ = true;
  interrupt();
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
  if (owner_reads_) {
    lock.unlock();
    interrupt();
    lock.lock();
  }
  changed_.wait(lock, [this] { return !owner_reads_; });
  return true;
}

void reader_turn::give_back(bool now) {
  std::unique_lock lock{mutex_};
  other_reads_ = false;
  if (now || closed_ || recalled_)
    lent_ = false;
  if (!lent_)
    tell(lock);
}

void reader_turn::recall() {
  std::unique_lock lock{mutex_};
  recalled_ = true;
  if (other_reads_ || !lent_)
    return;
  lent_ = false;
  tell(lock);
}

} // namespace troupe
