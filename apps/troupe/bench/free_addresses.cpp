#include "apps/troupe/bench/free_addresses.hpp"

#include "kernels/file_descriptor.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <random>
#include <stdexcept>

#include <netinet/in.h>
#include <sys/socket.h>

namespace troupe::bench {

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
