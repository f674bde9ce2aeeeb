#include "actors/link/sockets.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>
#include <system_error>
#include <vector>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace troupe {

namespace {

using address_list = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

/// Finds the IP addresses of a name or an address in text form. Returns null if there are none;
/// `problem` then has the reason.
address_list resolve(const std::string& address, std::uint16_t port, int flags,
                     std::string& problem) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    problem = std::string{"host unknown: "} + ::gai_strerror(error);
  return {found, ::freeaddrinfo};
}

file_descriptor new_socket(int family) {
  return file_descriptor{::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
}

/// Switches off Nagle's algorithm, so that a short message is sent without delay.
void send_at_once(const file_descriptor& socket) {
  const int yes = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

/// The time for the next of `addresses` addresses: an equal part of the time that is left.
std::chrono::milliseconds share_of(std::chrono::steady_clock::time_point until,
                                   std::ptrdiff_t addresses) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
    (until - std::chrono::steady_clock::now()) / addresses);
  return std::max(left, std::chrono::milliseconds{1});
}

/// The text of an IP address. Empty for addresses of other kinds.
std::string ip_text(const sockaddr_storage& address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  if ((address.ss_family != AF_INET && address.ss_family != AF_INET6)
      || ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, text.data(), text.size(),
                       nullptr, 0, NI_NUMERICHOST)
        != 0)
    return {};
  // A socket for both IPv4 and IPv6 puts this prefix before IPv4 addresses.
  constexpr std::string_view mapped = "::ffff:";
  const std::string_view result{text.data()};
  const bool is_mapped = result.starts_with(mapped) && result.find('.') != result.npos;
  return std::string{is_mapped ? result.substr(mapped.size()) : result};
}

/// Makes a socket that listens at this address. Returns an empty descriptor if this fails; errno
/// then has the reason.
file_descriptor listen_at(const addrinfo& where, bool any) {
  auto result = new_socket(where.ai_family);
  if (!result)
    return result;
  const int yes = 1;
  const int no = 0;
  ::setsockopt(result.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (any && where.ai_family == AF_INET6)
    ::setsockopt(result.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  if (::bind(result.get(), where.ai_addr, where.ai_addrlen) == 0
      && ::listen(result.get(), SOMAXCONN) == 0)
    return result;
  const int error = errno;
  result = {};
  errno = error;
  return result;
}

struct local_address {
  sockaddr_un address{};
  socklen_t size = 0;

  explicit local_address(const std::string& name) {
    address.sun_family = AF_UNIX;
    const auto n = std::min(name.size(), sizeof address.sun_path - 1);
    std::memcpy(address.sun_path + 1, name.data(), n);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + n);
  }

  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&address); }
};

/// Waits until a non-blocking connect() has ended. Returns 0, or the error that prevented the
/// connection.
int wait_for_connection(const file_descriptor& socket, std::chrono::milliseconds timeout) {
  pollfd x{socket.get(), POLLOUT, 0};
  const int n = ::poll(&x, 1, static_cast<int>(timeout.count()));
  if (n == 0)
    return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return n < 0 ? errno : error;
}

} // namespace

void fail_with(const std::string& what) {
  throw std::system_error{errno, std::generic_category(), what};
}

file_descriptor listen_locally(const std::string& name) {
  auto result = new_socket(AF_UNIX);
  const local_address where{name};
  if (!result || ::bind(result.get(), where.get(), where.size) != 0
      || ::listen(result.get(), SOMAXCONN) != 0)
    fail_with("cannot listen on a Unix socket");
  return result;
}

file_descriptor listen_on(const std::string& address, std::uint16_t& port) {
  const bool any = address == any_address;
  file_descriptor result;
  std::string problem;
  // "0.0.0.0" is tried second, because a host may have no IPv6.
  for (const auto& name : any ? std::vector<std::string>{"::", "0.0.0.0"} : std::vector{address}) {
    const auto found = resolve(name, port, AI_PASSIVE, problem);
    if (!found && !any)
      throw std::system_error{std::make_error_code(std::errc::address_not_available),
                              address + ": " + problem};
    for (const auto* x = found.get(); x != nullptr && !result; x = x->ai_next)
      result = listen_at(*x, any);
    if (result)
      break;
  }
  if (!result)
    fail_with("cannot listen on " + address + ':' + std::to_string(port));
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ::getsockname(result.get(), reinterpret_cast<sockaddr*>(&bound), &size);
  port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(bound).sin_port);
  return result;
}

// The address comes from accept4(), because getpeername() fails if the connection is already
// broken.
file_descriptor accept_on(int listener, std::string& peer) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  file_descriptor result{::accept4(listener, reinterpret_cast<sockaddr*>(&address), &size,
                                   SOCK_CLOEXEC | SOCK_NONBLOCK)};
  if (!result)
    return result;
  send_at_once(result);
  peer = ip_text(address, size);
  return result;
}

file_descriptor connect_locally(const std::string& name) {
  auto result = new_socket(AF_UNIX);
  const local_address where{name};
  if (result && ::connect(result.get(), where.get(), where.size) != 0)
    return {};
  return result;
}

file_descriptor connect_to(const std::string& address, std::uint16_t port,
                           std::chrono::milliseconds timeout, std::string& problem, bool& refused) {
  const auto found = resolve(address, port, 0, problem);
  std::ptrdiff_t left = 0;
  for (const auto* x = found.get(); x != nullptr; x = x->ai_next)
    ++left;
  const auto until = std::chrono::steady_clock::now() + timeout;
  for (const auto* x = found.get(); x != nullptr; x = x->ai_next, --left) {
    auto result = new_socket(x->ai_family);
    int error = ::connect(result.get(), x->ai_addr, x->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS)
      error = wait_for_connection(result, share_of(until, left));
    if (error == 0) {
      send_at_once(result);
      return result;
    }
    problem = std::generic_category().message(error);
    refused = error == ECONNREFUSED;
  }
  return {};
}

bool has_data(int socket, std::chrono::milliseconds timeout) {
  pollfd x{socket, POLLIN, 0};
  return ::poll(&x, 1, static_cast<int>(timeout.count())) > 0;
}

std::string peer_of(int socket) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  return ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) == 0 ? ip_text(peer, size)
                                                                               : std::string{};
}

bool has_equal_ends(int socket) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_size = sizeof own;
  socklen_t peer_size = sizeof peer;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_size) != 0
      || ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0)
    return false;
  const auto text = ip_text(own, own_size);
  return !text.empty() && text == ip_text(peer, peer_size);
}

} // namespace troupe
