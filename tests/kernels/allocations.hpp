#pragma once

#include <cstddef>

namespace troupe::test {

/// Allocations (malloc and all that rests on it, in any library) of this thread so far.
std::size_t allocations() noexcept;

} // namespace troupe::test
