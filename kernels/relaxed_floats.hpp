#pragma once

#include <atomic>
#include <cstddef>
#include <span>

namespace troupe {

// float32 vectors that several threads read and write at once, without locks (Hogwild, Niu et al.
// 2011, arXiv 1106.5730). Each word is read and written whole, by relaxed atomic operations: on
// x86-64 and AArch64 ordinary loads and stores. Nothing is promised about two words: a copy may
// hold some from before another thread's update and some from after it.

/// Copies `shared`, which others may be writing, to `out` of the same size.
inline void relaxed_copy(std::span<float> shared, std::span<float> out) noexcept {
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = std::atomic_ref{shared[i]}.load(std::memory_order_relaxed);
}

/// Moves `shared`, which others may be writing, by the way from `before` to `after`, all of the
/// same size. A word that is still the one of `before` becomes that of `after`, bit for bit; one
/// that did not move is not written. What another thread writes to a word between its load and its
/// store here is lost.
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
