#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
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
      typedef std::int64_t word_pairs __attribute__((vector_size(16))); // NOLINT
      const word_block old = load_words(&before[i]);
      const word_block next = load_words(&after[i]);
      const word_block now = load_words(&shared[i]);
      const auto equal = old == next;
      const word_block moved = equal ? now : now == old ? next : now + (next - old);
      store_words(&after[i], moved);
      const auto pairs = reinterpret_cast<word_pairs>(equal);
      if ((pairs[0] | pairs[1]) == 0)
        store_words(&shared[i], moved);
      else if ((pairs[0] & pairs[1]) != -1)
        for (std::size_t k = 0; k < block_words; ++k)
          if (equal[k] == 0)
            std::atomic_ref{shared[i + k]}.store(moved[k], std::memory_order_relaxed);
    }
  for (; i < after.size(); ++i)
    relaxed_move(shared[i], before[i], after[i]);
}

} // namespace troupe
