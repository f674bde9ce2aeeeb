#include "kernels/cpu/thread_team.hpp"

#include "kernels/cpu/flush_denormals.hpp"

#include <chrono>
#include <csignal>

namespace troupe {

namespace {

using std::chrono::microseconds;

/// How long a thread spins (polls without sleeping) while it waits for more work. This is longer
/// than the usual gap between two instructions that are divided among threads. Waking a sleeping
/// thread takes about 50 us, and ten wake-ups take a third of a training step of an MLP.
constexpr microseconds for_work{100};
/// How long the owner (the thread that calls `run`) spins while it waits for the other threads to
/// finish their parts. It is about as long as a part takes. A thread that takes longer has probably
/// lost its processor to another program. It can use the owner's processor if the owner sleeps.
constexpr microseconds for_others{30};

/// Waits until `x` differs from `old`, and returns the new value. Spins for `patience`, and then
/// sleeps. It does not use the pause instruction of the processor, because many hypervisors suspend
/// a processor that executes this instruction often.
std::int32_t wait_for_change(const std::atomic<std::int32_t>& x, std::int32_t old,
                             microseconds patience) {
  constexpr int looks = 1000; // about a microsecond
  const auto begin = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < looks; ++i)
      if (const auto now = x.load(std::memory_order_acquire); now != old)
        return now;
  } while (std::chrono::steady_clock::now() - begin < patience);
  x.wait(old, std::memory_order_acquire);
  return x.load(std::memory_order_acquire);
}

} // namespace

thread_team::thread_team(std::size_t size) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (std::size_t i = 1; i < size; ++i)
      threads_.emplace_back([this, i] { serve(i); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    end();
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

thread_team::~thread_team() {
  end();
}

void thread_team::end() {
  ended_ = true;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (auto& x : threads_)
    x.join();
}

void thread_team::serve(std::size_t index) {
  const cpu::flush_denormals mode;
  for (std::int32_t seen = 0;;) {
    seen = wait_for_change(round_, seen, for_work);
    if (ended_)
      return;
    work_(index);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1)
      busy_.notify_one();
  }
}

void thread_team::run(function_ref<void(std::size_t)> work) {
  work_ = work;
  busy_.store(static_cast<std::int32_t>(threads_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  work(0);
  for (auto left = busy_.load(std::memory_order_acquire); left != 0;)
    left = wait_for_change(busy_, left, for_others);
}

} // namespace troupe
