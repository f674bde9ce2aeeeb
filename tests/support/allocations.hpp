#pragma once

#include <cstddef>

namespace troupe::test {

/// The number of allocations by this thread so far: malloc and all functions that use it, in any
/// library.
std::size_t allocations() noexcept;

/// The smallest size of a large allocation. Tensors are larger, and headers or nodes of containers
/// are smaller.
inline constexpr std::size_t large_allocation = 4096;

/// The number of large allocations, by all threads so far.
std::size_t large_allocations() noexcept;

} // namespace troupe::test
