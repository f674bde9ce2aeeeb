#include "actors/link/reader_turn.hpp"

namespace troupe {

void reader_turn::wait() {
  std::unique_lock lock{mutex_};
  if (!lent_)
    return;
  owner_reads_ = false;
  tell(lock);
  while (lent_) {
    const auto now = clock::now();
    const auto back = (other_reads_ ? now : given_back_) + absence_;
    if (now >= back)
      lent_ = false;
    else
      changed_.wait_until(lock, back, [this] { return !lent_; });
  }
  owner_reads_ = true;
}

// Wakes waiting threads without holding the mutex, because a woken thread would have to wait for
// the mutex.
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
  given_back_ = clock::now();
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
