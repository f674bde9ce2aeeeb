#pragma once

#include <cstddef>

namespace troupe::test {

/// Allocations (malloc and everything based on it, in any library) of this thread so far.
std::size_t allocations() noexcept;

/// What counts as large: a tensor, as opposed to a header or the node of a container.
inline constexpr std::size_t large_allocation = 4096;

/// Allocations of at least this many bytes, of all threads so far.
std::size_t large_allocations() noexcept;

} // namespace troupe::test
