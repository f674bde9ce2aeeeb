#pragma once

#include <cstddef>
#include <string>

namespace troupe {

/// 1536 -> "1.5 KiB".
std::string readable_bytes(std::size_t bytes);

} // namespace troupe
