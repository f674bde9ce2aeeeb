#pragma once

#include <cstdint>

namespace troupe::test {

/// The number of cases that a test tries out of `n`: all in an optimized build, but only a tenth
/// under a sanitizer. A sanitizer makes each case ten times as slow, and it needs only a
/// few cases to find an error.
constexpr std::uint64_t tries(std::uint64_t n) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return n < 10 ? 1 : n / 10;
#else
  return n;
#endif
}

} // namespace troupe::test
