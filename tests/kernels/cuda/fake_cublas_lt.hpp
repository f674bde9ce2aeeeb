#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::test {

// A library with the name and functions of cublasLt that computes on the host. It checks its
// arguments as far as cublasLt's documentation describes the checks. It has no algorithm for
// products with `refused_columns` columns.

inline constexpr std::uint64_t refused_columns = 13;

/// Calls since the last reset.
struct fake_counts {
  std::size_t proposals = 0;
  std::size_t products = 0;
  /// Descriptors that are not destroyed, and libraries that are not closed.
  std::ptrdiff_t alive = 0;
};

fake_counts& fake_cublas_lt_counts();

} // namespace troupe::test
