#include "messages/packed_floats.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace troupe {

namespace {

constexpr std::size_t block = 64;

std::size_t blocks_of(std::size_t n) noexcept {
  return (n + block - 1) / block;
}

/// Bytes of the bits of all blocks; an even number.
std::size_t map_bytes(std::size_t n) noexcept {
  const auto bytes = (blocks_of(n) + 7) / 8;
  return bytes + bytes % 2;
}

bool is_set(const std::byte* map, std::size_t b) {
  return (map[b / 8] >> (b % 8) & std::byte{1}) != std::byte{0};
}

std::uint32_t bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

} // namespace

std::size_t packed_bytes(std::size_t n) noexcept {
  return map_bytes(n) + n * sizeof(std::uint16_t);
}

payload pack_floats(std::span<const float> values) {
  const auto n = values.size();
  std::vector<std::size_t> kept;
  std::size_t lower = 0;
  for (std::size_t b = 0; b < blocks_of(n); ++b) {
    const auto part = values.subspan(b * block, std::min(block, n - b * block));
    std::uint32_t any = 0;
    for (const auto x : part)
      any |= bits(x) & 0xffffU;
    if (any != 0) {
      kept.push_back(b);
      lower += part.size();
    }
  }
  const auto size = packed_bytes(n) + lower * sizeof(std::uint16_t);
  if (size >= values.size_bytes())
    return {};
  auto result = payload::allocate(size);
  auto* map = result.mutable_data();
  std::fill_n(map, map_bytes(n), std::byte{0});
  for (const auto b : kept)
    map[b / 8] |= std::byte{1} << (b % 8);
  auto* out = reinterpret_cast<std::uint16_t*>(map + map_bytes(n));
  for (std::size_t i = 0; i < n; ++i)
    out[i] = static_cast<std::uint16_t>(bits(values[i]) >> 16);
  out += n;
  for (const auto b : kept)
    for (auto i = b * block; i < std::min(n, (b + 1) * block); ++i)
      *out++ = static_cast<std::uint16_t>(bits(values[i]));
  return result;
}

std::optional<payload> unpack_floats(const payload& packed, std::size_t n) {
  if (n > packed.size() / sizeof(std::uint16_t) || packed.size() < packed_bytes(n))
    return std::nullopt;
  const auto* map = packed.data();
  const auto* upper = reinterpret_cast<const std::uint16_t*>(map + map_bytes(n));
  const auto* lower = upper + n;
  auto rest = (packed.size() - packed_bytes(n)) / sizeof(std::uint16_t);
  if (packed.size() % sizeof(std::uint16_t) != 0)
    return std::nullopt;
  auto result = payload::floats(n);
  const auto out = result.as_mutable_floats();
  for (std::size_t i = 0; i < n; ++i)
    out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(upper[i]) << 16);
  for (std::size_t b = 0; b < blocks_of(n); ++b) {
    if (!is_set(map, b))
      continue;
    const auto end = std::min(n, (b + 1) * block);
    if (rest < end - b * block)
      return std::nullopt;
    for (auto i = b * block; i < end; ++i, --rest)
      out[i] = std::bit_cast<float>(bits(out[i]) | *lower++);
  }
  return rest == 0 ? std::optional{std::move(result)} : std::nullopt;
}

} // namespace troupe
