#pragma once

#include <cstddef>
#include <string>

namespace troupe::bench {

/// Bytes of "64KiB", "16MiB" or "4096". Throws input_error, naming the option, if it is not such a
/// text, or no multiple of a float.
std::size_t parse_size(const std::string& option, const std::string& text);

} // namespace troupe::bench
