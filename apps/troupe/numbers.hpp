#pragma once

#include <cstddef>
#include <string>

namespace troupe {

/// 12345678 -> "12,345,678"; rounded to an integer.
std::string grouped(double x);

/// 1536 -> "1.5 KiB".
std::string readable_bytes(std::size_t bytes);

} // namespace troupe
