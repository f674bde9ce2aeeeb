#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::test {

// A library with the name and functions of cublasLt that computes on the host. It checks its
// arguments like cublasLt, as far as its documentation says how. Products with `refused` columns
// have no algorithm.

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
