#pragma once

#include "kernels/function_ref.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace troupe {

/// Decides which thread reads the sockets of a process. Usually this is the *owner*, a thread that
/// does nothing else. A thread that waits for a message may read instead of the owner. The message
/// then wakes only this thread; otherwise the message would wake the owner, and the owner would
/// wake this thread. (The thread that reads is the leader in the pattern "leader/followers":
/// Schmidt, Stal, Rohnert, Buschmann 2000, Pattern-Oriented Software Architecture 2.)
///
/// A thread that has read once will soon read again. So after that thread stops, the owner waits a
/// moment before it reads. Thread-safe.
class reader_turn {
public:
  /// @param absence the owner reads again if no other thread has read for this long
  explicit reader_turn(std::chrono::milliseconds absence = std::chrono::milliseconds{2}) noexcept
    : absence_(absence) {}

  // -- for the owner

  /// Waits until it is the owner's turn to read. Returns at once if no other thread has taken the
  /// turn. The owner calls it before each read.
  void wait();

  // -- for other threads; not for the owner

  /// From now on, take() fails. If a thread reads instead of the owner, waits until this thread has
  /// given back its turn.
  /// @param interrupt called here; must wake the reading thread, which then checks closed()
  void close(function_ref<void()> interrupt);
  bool closed() const noexcept { return closed_; }

  /// Asks for the turn to read and waits until the owner has stopped reading. Returns true if the
  /// caller now has the turn; it must then call give_back(). Returns false after close(), or if
  /// another thread already reads instead of the owner. In the second case, the owner reads again
  /// as soon as that thread gives back its turn.
  /// @param interrupt called here; must wake the owner, which then calls wait()
  bool take(function_ref<void()> interrupt);

  /// Ends the turn that take() has given to the caller.
  /// @param now if true, the owner reads again at once, not after `absence`
  void give_back(bool now);

  /// Makes the owner read again at once, or, if another thread reads, as soon as that thread gives
  /// back its turn. Call it when there is work for which no thread waits, such as records that a
  /// full socket has not taken.
  void recall();

private:
  using clock = std::chrono::steady_clock;

  void tell(std::unique_lock<std::mutex>& lock);

  std::chrono::milliseconds absence_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> closed_ = false;
  /// True if the owner must not read.
  bool lent_ = false;
  bool owner_reads_ = true;
  bool other_reads_ = false;
  bool recalled_ = false;
  /// When another thread last gave back its turn.
  clock::time_point given_back_ = {};
};

} // namespace troupe
