#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// Splits "host:port". Returns false if the text does not have this form, or if the port is not in
/// 0 .. 65535.
bool split_address(const std::string& address, std::string& host, std::uint16_t& port);

} // namespace troupe
