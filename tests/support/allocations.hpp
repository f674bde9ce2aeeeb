#pragma once

#include <cstddef>

namespace troupe::test {

/// Number of allocations of this thread so far, in any library: calls of malloc, calloc, realloc
/// and the functions for aligned memory. `operator new` calls one of these.
std::size_t allocations() noexcept;

/// The smallest size of a "large" allocation in bytes. Tensors are larger. Headers and nodes of
/// containers are smaller.
inline constexpr std::size_t large_allocation = 4096;

/// Number of large allocations of all threads so far.
std::size_t large_allocations() noexcept;

} // namespace troupe::test
