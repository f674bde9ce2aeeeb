#pragma once

#include <cstdint>

namespace troupe::test {

// Under a sanitizer, tests try fewer cases: each case takes ten times as long, and a few cases are
// enough to find an error.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool under_sanitizer = true;
#else
inline constexpr bool under_sanitizer = false;
#endif

/// The number of cases that a test tries. In an optimized build, this is n. Under a sanitizer, it
/// is n / 10, at least 1; from n = 1000 on, it is n / 20.
constexpr std::uint64_t tries(std::uint64_t n) {
  return !under_sanitizer ? n : n < 10 ? 1 : n < 1000 ? n / 10 : n / 20;
}

/// Chooses which cases of nested loops a test tries: all in an optimized build, every `stride`-th
/// under a sanitizer. Usage: `if (!chosen()) continue;`
class some_cases {
public:
  explicit some_cases(std::uint64_t stride = 13) : stride_(stride) {}

  bool operator()() { return !under_sanitizer || seen_++ % stride_ == 0; }

private:
  std::uint64_t stride_;
  std::uint64_t seen_ = 0;
};

} // namespace troupe::test
