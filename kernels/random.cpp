#include "kernels/random.hpp"

#include <bit>
#include <cmath>

namespace troupe {

namespace {

__extension__ using uint128 = unsigned __int128;

/// The last step of splitmix64 (Steele, Lea and Flood, 2014). It maps similar numbers to unrelated
/// ones.
constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

constexpr std::uint64_t golden = 0x9e3779b97f4a7c15U;

/// Natural logarithm of a normal positive number. It uses only additions, multiplications and
/// divisions, so the result is the same on every machine: x = m 2^e with m in [sqrt(1/2), sqrt(2)),
/// log m = 2 artanh((m - 1) / (m + 1)). Error below 1e-15.
double portable_log(double x) noexcept {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < 0.70710678118654752440) {
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;
  double series = 0;
  for (int k = 23; k >= 1; k -= 2)
    series = series * s2 + 1.0 / k;
  return 2 * s * series + exponent * 0.69314718055994530942;
}

} // namespace

std::uint64_t stream_key(std::uint64_t seed, std::string_view name) noexcept {
  // The FNV-1a hash of the name. Similar names can have similar hashes; mix() makes the keys
  // unrelated.
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (char c : name)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return mix(mix(seed + golden) ^ mix(hash ^ name.size()));
}

std::uint64_t stream_key(std::uint64_t seed, std::initializer_list<std::uint64_t> path) noexcept {
  std::uint64_t key = mix(seed + golden);
  for (auto x : path)
    key = mix(key * golden + mix(x + golden));
  return key;
}

random_stream::random_stream(std::uint64_t seed) noexcept {
  for (auto& word : state_) {
    seed += golden;
    word = mix(seed);
  }
}

random_stream::random_stream(std::uint64_t seed, std::string_view name) noexcept
  : random_stream(stream_key(seed, name)) {}

random_stream::random_stream(std::uint64_t seed, std::initializer_list<std::uint64_t> path) noexcept
  : random_stream(stream_key(seed, path)) {}

std::uint64_t random_stream::next() noexcept {
  const auto result = std::rotl(state_[0] + state_[3], 23) + state_[0];
  const auto t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

std::uint64_t random_stream::below(std::uint64_t bound) noexcept {
  auto product = static_cast<uint128>(next()) * bound;
  if (static_cast<std::uint64_t>(product) < bound) {
    const auto threshold = (0 - bound) % bound;
    while (static_cast<std::uint64_t>(product) < threshold)
      product = static_cast<uint128>(next()) * bound;
  }
  return static_cast<std::uint64_t>(product >> 64);
}

double random_stream::uniform() noexcept {
  return static_cast<double>(next() >> 11) * 0x1p-53;
}

double random_stream::normal() noexcept {
  for (;;) {
    const double u = 2 * uniform() - 1;
    const double v = 2 * uniform() - 1;
    const double s = u * u + v * v;
    if (s > 0 && s < 1)
      return u * std::sqrt(-2 * portable_log(s) / s);
  }
}

} // namespace troupe
