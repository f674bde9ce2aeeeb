#pragma once

#include <cstddef>

namespace troupe::test {

/// Number of allocations (malloc and everything based on it, in any library) by this thread so far.
std::size_t allocations() noexcept;

/// The size of a large allocation: a tensor, unlike a header or the node of a container.
inline constexpr std::size_t large_allocation = 4096;

/// Number of allocations of at least this many bytes, by all threads so far.
std::size_t large_allocations() noexcept;

} // namespace troupe::test
