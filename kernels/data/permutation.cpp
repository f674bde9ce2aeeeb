#include "kernels/data/permutation.hpp"

#include "kernels/random.hpp"

#include <algorithm>
#include <bit>

namespace troupe {

namespace {

constexpr unsigned min_bits = 8; // networks with fewer bits shuffle badly

/// The round function of the Feistel network. It is the last step of splitmix64 (Steele, Lea, Flood
/// 2014). `x` is one half of the bits plus a key.
std::uint64_t mix_half(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

std::uint64_t mask_of(unsigned bits) noexcept {
  return (std::uint64_t{1} << bits) - 1;
}

} // namespace

permutation::permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch) noexcept
  : size_(size) {
  const auto needed = static_cast<unsigned>(size > 0 ? std::bit_width(size - 1) : 0);
  const unsigned bits = std::max(needed, min_bits);
  low_bits_ = bits / 2;
  low_mask_ = mask_of(low_bits_);
  high_mask_ = mask_of(bits - low_bits_);
  random_stream keys{stream_key(seed, "permutation"), {epoch}};
  std::ranges::generate(keys_, [&] { return keys.next(); });
}

std::uint64_t permutation::at(std::uint64_t position) const noexcept {
  std::uint64_t x = position;
  do {
    std::uint64_t low = x & low_mask_;
    std::uint64_t high = x >> low_bits_;
    for (unsigned i = 0; i < rounds; i += 2) {
      high ^= mix_half(low + keys_[i]) & high_mask_;
      low ^= mix_half(high + keys_[i + 1]) & low_mask_;
    }
    x = high << low_bits_ | low;
  } while (x >= size_);
  return x;
}

void permutation::fill(std::uint64_t first, std::span<std::uint64_t> records) const noexcept {
  for (auto& record : records)
    record = at(first++);
}

} // namespace troupe
