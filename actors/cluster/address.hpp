#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// "host:port" in two. False where it is not of that form, or the port not in 0 .. 65535.
bool split_address(const std::string& address, std::string& host, std::uint16_t& port);

} // namespace troupe
