#pragma once

#ifdef __SSE__
#include <immintrin.h>
#endif

namespace troupe::cpu {

/// While an object of this type exists, its thread treats denormal numbers (below 1.2e-38 in float)
/// as zero, in operands and results. NaN and infinity are not affected.
///
/// Reason: arithmetic on denormal numbers is about a hundred times slower. If the gradient of a
/// weight stays 0, the weight's velocity (momentum) shrinks in each step until it is denormal.
/// After a thousand steps, the update of an MLP took four times as long. Instructions of a plan,
/// sums and updates always run in this mode, so their results do not depend on a mode that other
/// code has set.
class flush_denormals {
public:
#ifdef __SSE__
  flush_denormals() noexcept : before_(_mm_getcsr()) {
    _mm_setcsr(before_ | 0x8040U);
  }
  ~flush_denormals() {
    _mm_setcsr(before_);
  }
#else
  flush_denormals() noexcept {}
  ~flush_denormals() {}
#endif
  flush_denormals(const flush_denormals&) = delete;
  flush_denormals& operator=(const flush_denormals&) = delete;

private:
#ifdef __SSE__
  unsigned before_;
#endif
};

} // namespace troupe::cpu
