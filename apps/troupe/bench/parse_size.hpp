#pragma once

#include <cstddef>
#include <string>

namespace troupe::bench {

/// Parses "64KiB", "16MiB" or "4096" to bytes. Throws input_error, which names the option, for any
/// other text, or if the size is not a multiple of that of a float.
std::size_t parse_size(const std::string& option, const std::string& text);

} // namespace troupe::bench
