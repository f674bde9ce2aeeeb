#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace troupe {

/// A number of bytes as text, such as "1.5 KiB" for 1536.
std::string readable_bytes(std::size_t bytes);

/// A number with separators, such as "60,000" for 60000.
std::string number(std::uint64_t x);

} // namespace troupe
