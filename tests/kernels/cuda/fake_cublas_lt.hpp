#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::test {

// A library with the name and the functions of cublasLt. It computes on the host. It checks its
// arguments as cublasLt's documentation describes. For products with `refused_columns` columns, it
// has no algorithm.

inline constexpr std::uint64_t refused_columns = 13;

/// Numbers of calls since the last reset.
struct fake_counts {
  std::size_t proposals = 0;
  std::size_t products = 0;
  /// Descriptors that were not destroyed, and libraries that were not closed.
  std::ptrdiff_t alive = 0;
};

fake_counts& fake_cublas_lt_counts();

/// If it is true, the library finds too little memory when it starts.
bool& fake_cublas_lt_lacks_memory();

} // namespace troupe::test
