#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace troupe {

/// 1536 -> "1.5 KiB".
std::string readable_bytes(std::size_t bytes);

/// 60000 -> "60,000".
std::string number(std::uint64_t x);

} // namespace troupe
