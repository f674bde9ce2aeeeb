#include "actors/replica/replica_check.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>

namespace troupe {

namespace {

constexpr std::uint64_t prime_1 = 0x9E3779B185EBCA87;
constexpr std::uint64_t prime_2 = 0xC2B2AE3D27D4EB4F;
constexpr std::uint64_t prime_3 = 0x165667B19E3779F9;
constexpr std::size_t floats_per_round = 8;
constexpr unsigned part_bits = 22;

std::uint64_t round_of(std::uint64_t lane, std::uint64_t word) noexcept {
  return std::rotl(lane + word * prime_2, 31) * prime_1;
}

std::uint64_t mixed(std::uint64_t x) noexcept {
  x = (x ^ x >> 33) * prime_2;
  x = (x ^ x >> 29) * prime_3;
  return x ^ x >> 32;
}

/// A rank's hash of one bucket, as three whole numbers (check_elements).
using parts = std::array<float, 3>;

} // namespace

std::uint64_t hash_of_bits(std::span<const float> values) noexcept {
  std::array<std::uint64_t, 4> lanes{prime_1 + prime_2, prime_2, 0, 0 - prime_1};
  std::array<std::uint64_t, 4> words{};
  const auto whole = values.size() - values.size() % floats_per_round;
  for (std::size_t i = 0; i < whole; i += floats_per_round) {
    std::memcpy(words.data(), values.data() + i, sizeof words);
    for (std::size_t k = 0; k < lanes.size(); ++k)
      lanes[k] = round_of(lanes[k], words[k]);
  }
  std::uint64_t result = values.size() * prime_3;
  for (const auto lane : lanes)
    result = (result ^ round_of(0, lane)) * prime_1 + prime_3;
  for (const float x : values.subspan(whole))
    result = std::rotl(result ^ std::bit_cast<std::uint32_t>(x) * prime_1, 23) * prime_2 + prime_3;
  return mixed(result);
}

void put_hashes(std::span<const std::uint64_t> hashes, std::size_t rank, std::span<float> into) {
  constexpr std::uint64_t mask = (1U << part_bits) - 1;
  auto at = into.begin() + static_cast<std::ptrdiff_t>(3 * rank * hashes.size());
  for (const auto hash : hashes)
    for (unsigned shift = 0; shift < 64; shift += part_bits)
      *at++ = static_cast<float>(hash >> shift & mask);
}

std::optional<replica_difference> compare_hashes(std::span<const float> sums, std::size_t ranks) {
  const auto buckets = sums.size() / (3 * ranks);
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    std::vector<parts> hashes(ranks);
    std::map<parts, std::size_t> count;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::ranges::copy(sums.subspan(3 * (rank * buckets + bucket), 3), hashes[rank].begin());
      ++count[hashes[rank]];
    }
    if (count.size() == 1)
      continue;
    const auto most = std::ranges::max_element(count, {}, [](auto& x) { return x.second; });
    replica_difference result;
    result.bucket = bucket;
    result.majority = 2 * most->second > ranks;
    for (std::size_t rank = 0; rank < ranks; ++rank)
      if (!result.majority || hashes[rank] != most->first)
        result.ranks.push_back(rank);
    return result;
  }
  return std::nullopt;
}

} // namespace troupe
