#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::bench {

/// Addresses "127.0.0.1:PORT" with different ports that are free now. The ports are below those
/// that the system gives to connections, so no connection takes one before a process listens there.
/// Throws std::runtime_error if there are not enough.
std::vector<std::string> free_addresses(std::size_t count);

} // namespace troupe::bench
