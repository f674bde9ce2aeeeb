#include "apps/troupe/numbers.hpp"

#include "actors/output/text.hpp"

#include <fmt/format.h>

#include <array>

namespace troupe {

std::string readable_bytes(std::size_t bytes) {
  if (bytes < 1024)
    return fmt::format("{} B", bytes);
  constexpr std::array units{"KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  // The limit is below 1024, because 1023.96 would be printed as 1024.0.
  for (; value >= 1023.95 && unit + 1 < units.size(); ++unit)
    value /= 1024;
  return fmt::format("{:.1f} {}", value, units[unit]);
}

std::string number(std::uint64_t x) {
  return grouped(static_cast<double>(x));
}

} // namespace troupe
