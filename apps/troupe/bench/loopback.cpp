#include "apps/troupe/bench/loopback.hpp"

#include "actors/link/file_descriptor.hpp"
#include "kernels/error.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <random>
#include <stdexcept>

#include <netinet/in.h>
#include <sys/socket.h>

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

std::vector<std::string> free_addresses(std::size_t count) {
  constexpr std::uint16_t first = 10'000;
  constexpr std::uint16_t last = 32'000;
  std::vector<std::string> result;
  auto port = static_cast<std::uint16_t>(first + std::random_device{}() % (last - first));
  for (int left = last - first; left > 0 && result.size() < count; --left) {
    port = port + 1 < last ? port + 1 : first;
    const file_descriptor socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(port);
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0)
      result.push_back(fmt::format("127.0.0.1:{}", port));
  }
  if (result.size() < count)
    throw std::runtime_error{"no free port on 127.0.0.1"};
  return result;
}

} // namespace troupe::bench
