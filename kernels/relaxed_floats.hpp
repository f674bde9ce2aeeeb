#pragma once

#include <atomic>
#include <cstddef>
#include <span>

namespace troupe {

// float32 vectors that several threads read and write at the same time, without locks (Hogwild, Niu
// et al. 2011, arXiv 1106.5730). Relaxed atomic operations read and write each word as a whole; on
// x86-64 and AArch64, these are ordinary loads and stores. There is no guarantee across words: a
// copy may contain some words from before another thread's update and some from after it.

/// Copies `shared` to `out`, which has the same size. Other threads may write to `shared`
/// meanwhile.
inline void relaxed_copy(std::span<float> shared, std::span<float> out) noexcept {
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = std::atomic_ref{shared[i]}.load(std::memory_order_relaxed);
}

/// Moves `shared` by the difference from `before` to `after`; all have the same size. Other threads
/// may write to `shared` meanwhile. If a word still equals `before`, it becomes the word of
/// `after`, bit for bit. If `before` and `after` are equal, the word is not written. If another
/// thread writes to a word between the load and the store here, its write is lost.
inline void relaxed_move(std::span<float> shared, std::span<const float> before,
                         std::span<const float> after) noexcept {
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (after[i] == before[i])
      continue;
    std::atomic_ref word{shared[i]};
    const float now = word.load(std::memory_order_relaxed);
    word.store(now == before[i] ? after[i] : now + (after[i] - before[i]),
               std::memory_order_relaxed);
  }
}

} // namespace troupe
