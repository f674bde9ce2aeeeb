#include "apps/troupe/bench/parse_size.hpp"

#include "kernels/error.hpp"

#include <fmt/format.h>

#include <charconv>

namespace troupe::bench {

std::size_t parse_size(const std::string& option, const std::string& text) {
  std::size_t number = 0;
  const auto* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  const std::string unit{end, last};
  const std::size_t shift = unit == "KiB" ? 10 : unit == "MiB" ? 20 : 0;
  if (error != std::errc{} || (shift == 0 && !unit.empty()) || number == 0
      || number > (std::size_t{1} << 34) >> shift || (number << shift) % sizeof(float) != 0)
    throw input_error{fmt::format("{}={}: expected bytes, such as 4096, 64KiB or 16MiB, a "
                                  "multiple of {} and at most 16384MiB",
                                  option, text, sizeof(float))};
  return number << shift;
}

} // namespace troupe::bench
