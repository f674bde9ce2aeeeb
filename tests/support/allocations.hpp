#pragma once

#include <cstddef>

namespace troupe::test {

/// The number of allocations by this thread so far, in any library: calls of malloc, calloc,
/// realloc and the functions for aligned memory. `operator new` calls one of these.
std::size_t allocations() noexcept;

/// The smallest size of a large allocation. Tensors are larger, and headers or nodes of containers
/// are smaller.
inline constexpr std::size_t large_allocation = 4096;

/// The number of large allocations, by all threads so far.
std::size_t large_allocations() noexcept;

} // namespace troupe::test
