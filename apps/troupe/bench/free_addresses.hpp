#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::bench {

/// Addresses "127.0.0.1:PORT" with different ports that are free now. The ports are below the range
/// from which the system takes ports for outgoing connections. So no connection takes one of these
/// ports before a process listens there. Throws std::runtime_error if too few ports are free.
std::vector<std::string> free_addresses(std::size_t count);

} // namespace troupe::bench
