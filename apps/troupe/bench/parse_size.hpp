#pragma once

#include <cstddef>
#include <string>

namespace troupe::bench {

/// Converts a size such as "64KiB", "16MiB" or "4096" to bytes. The result is a multiple of
/// sizeof(float).
/// @throws input_error if the text is no such size; the error names the option
std::size_t parse_size(const std::string& option, const std::string& text);

} // namespace troupe::bench
