#pragma once

#include <atomic>
#include <cstddef>
#include <span>

namespace troupe {

// float32 vectors that several threads read and write at the same time, without locks (Hogwild, Niu
// et al. 2011, arXiv 1106.5730). Each word is read and written as a whole. There is no guarantee
// across words: a copy may contain some words from before another thread's update and some from
// after it.
//
// The language's primitive for this is a relaxed atomic operation per word. On x86-64 and AArch64,
// that is an ordinary load or store, but compilers do not combine several of them. Therefore the
// loops below access four words at once through a volatile vector. These processors never tear an
// aligned word of such an access. Builds for ThreadSanitizer use only the atomic operations, so it
// checks that all other accesses to the vectors are atomic, too.

#ifdef __SANITIZE_THREAD__
inline constexpr bool has_word_blocks = false;
#else
inline constexpr bool has_word_blocks = true;
#endif

/// Four words, aligned like a single one.
typedef float word_block __attribute__((vector_size(16), aligned(4), may_alias)); // NOLINT
inline constexpr std::size_t block_words = 4;

/// Loads and stores of block_words words that other threads may read and write meanwhile.
inline word_block load_words(const float* words) noexcept {
  return *reinterpret_cast<const volatile word_block*>(words);
}
inline void store_words(float* words, word_block values) noexcept {
  *reinterpret_cast<volatile word_block*>(words) = values;
}

/// Copies `shared` to `out`, which has the same size. Other threads may write to `shared`
/// meanwhile.
inline void relaxed_copy(std::span<float> shared, std::span<float> out) noexcept {
  std::size_t i = 0;
  if constexpr (has_word_blocks)
    for (; i + block_words <= out.size(); i += block_words)
      store_words(&out[i], load_words(&shared[i]));
  for (; i < out.size(); ++i)
    out[i] = std::atomic_ref{shared[i]}.load(std::memory_order_relaxed);
}

/// Moves a word by the difference from `before` to `after`, and sets `after` to its new value; see
/// below.
inline void relaxed_move(float& shared, float before, float& after) noexcept {
  std::atomic_ref word{shared};
  const float now = word.load(std::memory_order_relaxed);
  if (after == before) {
    after = now;
    return;
  }
  if (now != before)
    after = now + (after - before);
  word.store(after, std::memory_order_relaxed);
}

/// Moves `shared` by the difference from `before` to `after`, and sets `after` to the new values;
/// all have the same size. Other threads may write to `shared` meanwhile. If a word still equals
/// `before`, it becomes the word of `after`, bit for bit. If `before` and `after` are equal, the
/// word is not written. If another thread writes to a word between the load and the store here, its
/// write is lost.
inline void relaxed_move(std::span<float> shared, std::span<const float> before,
                         std::span<float> after) noexcept {
  std::size_t i = 0;
  if constexpr (has_word_blocks)
    for (; i + block_words <= after.size(); i += block_words) {
      const word_block old = load_words(&before[i]);
      const word_block next = load_words(&after[i]);
      typedef long long word_pairs __attribute__((vector_size(16))); // NOLINT
      const auto equal = reinterpret_cast<word_pairs>(old == next);
      if ((equal[0] | equal[1]) == 0) {
        const word_block now = load_words(&shared[i]);
        const word_block moved = now == old ? next : now + (next - old);
        store_words(&shared[i], moved);
        store_words(&after[i], moved);
      } else
        for (std::size_t k = i; k < i + block_words; ++k)
          relaxed_move(shared[k], before[k], after[k]);
    }
  for (; i < after.size(); ++i)
    relaxed_move(shared[i], before[i], after[i]);
}

} // namespace troupe
