#pragma once

#include <cstdint>

namespace troupe::test {

/// How many of `n` cases a test tries: all in an optimized build, a tenth under a sanitizer, which
/// makes each of them ten times as slow, and finds in a few what it would find in all.
constexpr std::uint64_t tries(std::uint64_t n) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return n < 10 ? 1 : n / 10;
#else
  return n;
#endif
}

} // namespace troupe::test
