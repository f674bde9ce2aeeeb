#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe {

// Functions for float32 vectors that several threads read and write at the same time, without locks
// (Hogwild, Niu et al. 2011, arXiv 1106.5730). A word is one float32. Each word is read or written
// as a whole. Different words are independent: a copy may contain some words from before another
// thread's update and some words from after it.
//
// In C++, access without locks requires one relaxed atomic operation per word. On x86-64 and
// AArch64, this operation is an ordinary load or store, but compilers do not combine four of them
// into one vector instruction. Therefore, the loops below access four words at once through a
// volatile vector. On these processors, a vector access still reads or writes each aligned word as
// a whole. Builds for ThreadSanitizer use only atomic operations. ThreadSanitizer then reports code
// elsewhere that accesses the vectors without atomic operations.

#ifdef __SANITIZE_THREAD__
inline constexpr bool has_word_blocks = false;
#else
inline constexpr bool has_word_blocks = true;
#endif

/// Four words. The address needs only the alignment of one word.
typedef float word_block __attribute__((vector_size(16), aligned(4), may_alias)); // NOLINT
inline constexpr std::size_t block_words = 4;

/// load_words and store_words access block_words words. Other threads may read and write the same
/// words at the same time.
inline word_block load_words(const float* words) noexcept {
  return *reinterpret_cast<const volatile word_block*>(words);
}
inline void store_words(float* words, word_block values) noexcept {
  *reinterpret_cast<volatile word_block*>(words) = values;
}

/// Copies `shared` to `out`, which has the same size. Other threads may write to `shared` during
/// the copy.
inline void relaxed_copy(std::span<float> shared, std::span<float> out) noexcept {
  std::size_t i = 0;
  if constexpr (has_word_blocks)
    for (; i + block_words <= out.size(); i += block_words)
      store_words(&out[i], load_words(&shared[i]));
  for (; i < out.size(); ++i)
    out[i] = std::atomic_ref{shared[i]}.load(std::memory_order_relaxed);
}

/// relaxed_move for a single word. The vector version below describes the steps.
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

/// Adds `after` - `before` to `shared`, and sets `after` to the new values of `shared`. All three
/// vectors have the same size. Other threads may write to `shared` at the same time. If another
/// thread writes to a word between the load and the store in this function, that write is lost.
///
/// If a word of `shared` still equals the same word of `before`, it becomes the same word of
/// `after`, bit for bit, without the rounding of a sum. If a word is equal in `before` and `after`,
/// this word of `shared` is not written.
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
