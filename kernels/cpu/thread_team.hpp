#pragma once

#include "kernels/function_ref.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace troupe {

/// A few threads that repeatedly share work. The work is typically one instruction of a plan, with
/// a few microseconds per thread. After its part, a thread spins (polls without sleeping) for a
/// moment, because more work usually follows at once. Then it sleeps. Only one thread, the owner,
/// may use a team at a time.
class thread_team {
public:
  /// The owner is one of the `size` threads. The constructor starts the other threads. They block
  /// all signals and treat denormal numbers as zero. Throws std::system_error if they cannot be
  /// started.
  explicit thread_team(std::size_t size);
  ~thread_team();
  thread_team(const thread_team&) = delete;
  thread_team& operator=(const thread_team&) = delete;

  std::size_t size() const noexcept { return threads_.size() + 1; }

  /// Calls work(i) once for each i < size(), each on its own thread; work(0) runs on the calling
  /// thread. Returns when all calls have returned. `work` must not throw. Allocates nothing.
  void run(function_ref<void(std::size_t)> work);

private:
  void serve(std::size_t index);
  void end();

  function_ref<void(std::size_t)> work_;
  /// Number of calls of run. It is written with release order: a thread that reads a new number
  /// also sees the work.
  std::atomic<std::int32_t> round_ = 0;
  std::atomic<std::int32_t> busy_ = 0;
  bool ended_ = false;
  std::vector<std::thread> threads_;
};

} // namespace troupe
