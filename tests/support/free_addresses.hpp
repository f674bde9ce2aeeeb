#pragma once

#include "kernels/file_descriptor.hpp"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>

namespace troupe::test {

/// Addresses of this host with ports that are free now. They are below the ports that the system
/// assigns automatically.
inline std::vector<std::string> free_addresses(std::size_t count) {
  static std::uint16_t port = 15'000 + std::random_device{}() % 12'000;
  std::vector<std::string> result;
  while (result.size() < count) {
    port = port < 32'000 ? port + 1 : 15'000;
    const file_descriptor socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(port);
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&where), sizeof where) == 0)
      result.push_back("127.0.0.1:" + std::to_string(port));
  }
  return result;
}

} // namespace troupe::test
