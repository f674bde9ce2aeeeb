#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>

namespace troupe {

/// A stream of random numbers that is the same on every machine, with every compiler and library.
/// The generator, the distributions and even the logarithm are part of troupe, because the results
/// of the standard library differ between implementations. The numbers are predictable, so do not
/// use them for secrets.
///
/// A seed, together with a name or integers, identifies a stream. Streams with different names are
/// independent for all practical purposes. The generator is xoshiro256++ (Blackman and Vigna,
/// 2019), with an initial state from splitmix64. Streams can be copied. Only one thread at a time
/// may use a stream.
class random_stream {
public:
  explicit random_stream(std::uint64_t seed) noexcept;
  random_stream(std::uint64_t seed, std::string_view name) noexcept;
  /// `path` is a list of integers that identifies the stream, such as {epoch} or {worker, step}.
  random_stream(std::uint64_t seed, std::initializer_list<std::uint64_t> path) noexcept;

  /// 64 random bits.
  std::uint64_t next() noexcept;
  /// Uniform in [0, bound), without bias (Lemire, 2019). Requires bound >= 1.
  std::uint64_t below(std::uint64_t bound) noexcept;
  /// Uniform in [0, 1), 53 random bits.
  double uniform() noexcept;
  /// Uniform in [low, high).
  double uniform(double low, double high) noexcept { return low + (high - low) * uniform(); }
  /// Normal, with mean 0 and variance 1. Marsaglia's polar method computes two such values; the
  /// second value is not used.
  double normal() noexcept;

  /// Random permutation of `items` in place (Fisher and Yates).
  template <class T>
  void shuffle(std::span<T> items) noexcept {
    for (std::size_t i = items.size(); i > 1; --i) {
      using std::swap;
      swap(items[i - 1], items[below(i)]);
    }
  }

  // With these members, the class is a UniformRandomBitGenerator of the standard library. Use it
  // with algorithms of std only if their results may differ between machines.
  using result_type = std::uint64_t;
  static constexpr result_type min() noexcept { return 0; }
  static constexpr result_type max() noexcept { return ~result_type{0}; }
  result_type operator()() noexcept { return next(); }

private:
  std::uint64_t state_[4];
};

/// Computes a 64-bit number from a seed and a name (or a list of integers). Similar arguments give
/// unrelated numbers. Use the result as the seed of a stream, or of several streams with different
/// names or integers.
std::uint64_t stream_key(std::uint64_t seed, std::string_view name) noexcept;
std::uint64_t stream_key(std::uint64_t seed, std::initializer_list<std::uint64_t> path) noexcept;

} // namespace troupe
