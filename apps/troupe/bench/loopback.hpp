#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::bench {

/// Bytes of "64KiB", "16MiB" or "4096". Throws input_error, naming the option, if it is not such a
/// text, or no multiple of a float.
std::size_t parse_size(const std::string& option, const std::string& text);

/// Addresses on loopback with ports that are free now, below those that the system gives to
/// connections: none is taken before a process listens.
std::vector<std::string> free_addresses(std::size_t count);

} // namespace troupe::bench
