#pragma once

#include "kernels/function_ref.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace troupe {

/// Decides which thread reads the sockets of a process. Usually their owner does, a thread that
/// does nothing else. A thread that waits for a message may read in its place, so that the message
/// need not wake two threads, one after the other. (Such threads are the leaders of the pattern
/// "leader/followers": Schmidt, Stal, Rohnert, Buschmann 2000, Pattern-Oriented Software
/// Architecture 2.)
///
/// A thread that reads once will soon read again, so the owner takes its time to come back.
/// Thread-safe.
class reader_turn {
public:
  /// @param absence the owner reads again after nobody else has begun to read for this long
  explicit reader_turn(std::chrono::milliseconds absence = std::chrono::milliseconds{1}) noexcept
    : absence_(absence) {}

  // -- for the owner

  /// Returns when it is the owner's turn: at once, unless another thread has taken it. The owner
  /// calls it again and again, until after close().
  void wait();

  // -- for other threads; not for the owner

  /// From now on, take() fails. Waits for a thread that reads instead of the owner.
  /// @param interrupt makes that thread look at closed()
  void close(function_ref<void()> interrupt);
  bool closed() const noexcept { return closed_; }

  /// Waits until the owner stands aside. Returns false if another thread reads instead of the
  /// owner, which then comes back as soon as that thread has read; also after close(). Otherwise,
  /// give_back() must follow.
  /// @param interrupt makes the owner call wait()
  bool take(function_ref<void()> interrupt);

  /// @param now the owner comes back at once
  void give_back(bool now);

  /// The owner comes back at once, or when the thread that now reads gives back its turn: there is
  /// work for which nobody else waits.
  void recall();

private:
  void tell(std::unique_lock<std::mutex>& lock);

  std::chrono::milliseconds absence_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> closed_ = false;
  /// The owner must stand aside.
  bool lent_ = false;
  bool owner_reads_ = true;
  bool other_reads_ = false;
  bool recalled_ = false;
  /// Number of calls of take() that succeeded.
  std::uint64_t takes_ = 0;
};

} // namespace troupe
