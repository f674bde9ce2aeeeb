#include "actors/boot_id.hpp"

#include <charconv>
#include <fstream>

namespace troupe {

std::string boot_id() {
  std::string result;
  std::ifstream{"/proc/sys/kernel/random/boot_id"} >> result;
  return result;
}

std::uint64_t boot_number() {
  auto digits = boot_id();
  std::erase(digits, '-');
  digits.resize(16, '0'); // The digits are random, so 64 bits of them are enough.
  std::uint64_t result = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), result, 16);
  return result;
}

} // namespace troupe
