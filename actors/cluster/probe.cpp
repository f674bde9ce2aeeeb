#include "actors/cluster/probe.hpp"

#include "actors/cluster/address.hpp"
#include "kernels/file_descriptor.hpp"
#include "messages/configure.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace troupe {

namespace {

using std::chrono::steady_clock;

/// Size of the header with which a handshake of the framework's protocol (BASP) starts. Byte 0 of
/// the header is 0. Bytes 4 to 7 are the length of the text after the header. This text lists the
/// identifiers of the applications that may communicate.
constexpr std::size_t basp_header_bytes = 32;
constexpr std::size_t longest_handshake = 4096;
constexpr std::string_view framework_name = "generic-caf-app";
constexpr std::string_view identity_start = "troupe/";
constexpr std::string_view channel_start = "channel=";
constexpr char identity_end = ';';

constexpr std::chrono::seconds second_port_limit{1};

/// Largest number of connections to try at the same time.
constexpr std::size_t most_at_once = 16;

/// Waits for an event on the socket. Returns false after the deadline.
bool wait_for(int socket, short event, steady_clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now());
    if (left.count() <= 0)
      return false;
    pollfd x{socket, event, 0};
    const auto n = ::poll(&x, 1, static_cast<int>(left.count()));
    if (n > 0)
      return true;
    if (n == 0 || errno != EINTR)
      return false;
  }
}

/// Connects to an address. Returns 0, or the error; the error is ETIMEDOUT after the deadline.
int connect_to(int socket, const sockaddr* to, socklen_t size, steady_clock::time_point deadline) {
  if (::connect(socket, to, size) == 0)
    return 0;
  if (errno != EINPROGRESS)
    return errno;
  if (!wait_for(socket, POLLOUT, deadline))
    return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

int connect_to(const addrinfo& to, steady_clock::time_point deadline) {
  const file_descriptor socket{
    ::socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  return socket.get() < 0 ? errno : connect_to(socket.get(), to.ai_addr, to.ai_addrlen, deadline);
}

std::string numeric(const addrinfo& x) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getnameinfo(x.ai_addr, x.ai_addrlen, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV)
      != 0)
    return "";
  const std::string name = host.data();
  return (x.ai_family == AF_INET6 ? '[' + name + ']' : name) + ':' + port.data();
}

/// True if the address belongs to this host.
bool is_own(const addrinfo& x) {
  const file_descriptor socket{::socket(x.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_storage any_port{};
  std::memcpy(&any_port, x.ai_addr, x.ai_addrlen);
  if (x.ai_family == AF_INET)
    reinterpret_cast<sockaddr_in&>(any_port).sin_port = 0;
  else if (x.ai_family == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(any_port).sin6_port = 0;
  return socket.get() >= 0
    && ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&any_port), x.ai_addrlen) == 0;
}

/// True if a program listens at this port on the host's loopback address.
bool listens_on_loopback(std::uint16_t port, steady_clock::time_point deadline) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  addrinfo to{};
  to.ai_family = AF_INET;
  to.ai_addr = reinterpret_cast<sockaddr*>(&address);
  to.ai_addrlen = sizeof address;
  return connect_to(to, deadline) == 0;
}

/// Reads the peer's first message. Returns an empty text if it is not a handshake.
std::string read_handshake(int socket, steady_clock::time_point deadline) {
  std::string bytes;
  std::size_t expected = basp_header_bytes;
  while (bytes.size() < expected) {
    std::array<char, 512> piece{};
    if (!wait_for(socket, POLLIN, deadline))
      return "";
    const auto n = ::recv(socket, piece.data(), std::min(piece.size(), expected - bytes.size()), 0);
    if (n <= 0 && errno != EINTR && errno != EAGAIN)
      return "";
    if (n == 0)
      return "";
    bytes.append(piece.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    if (bytes.size() < basp_header_bytes || expected != basp_header_bytes)
      continue;
    std::size_t rest = 0;
    for (std::size_t i = 4; i < 8; ++i)
      rest = rest << 8 | static_cast<unsigned char>(bytes[i]);
    if (bytes[0] != 0 || rest > longest_handshake)
      return "";
    expected += rest;
  }
  return bytes;
}

void understand(const std::string& handshake, proto::Reach& x) {
  if (handshake.find(framework_name) == std::string::npos) {
    x.set_problem(proto::Reach::FOREIGN);
    x.set_detail("the program that listens there is not a node");
    return;
  }
  x.set_problem(proto::Reach::REACHED);
  const auto start = handshake.find(identity_start);
  const auto end = handshake.find(identity_end, start);
  if (start == std::string::npos || end == std::string::npos)
    return; // A node of another program need not introduce itself.
  // "troupe/0.1.0 coordinator/0 worker/0 channel=41234;"
  std::string_view rest{handshake.data() + start + identity_start.size(),
                        end - start - identity_start.size()};
  const auto next = [&rest] {
    const auto word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    return std::string{word};
  };
  x.set_version(next());
  while (!rest.empty()) {
    const auto word = next();
    if (word.starts_with(channel_start)) {
      x.set_channel_port(
        static_cast<std::uint16_t>(std::strtoul(word.c_str() + channel_start.size(), nullptr, 10)));
      continue;
    }
    const auto slash = word.find('/');
    auto& task = *x.add_hosted();
    task.set_job(word.substr(0, slash));
    task.set_index(static_cast<std::uint32_t>(
      std::strtoul(slash == std::string::npos ? "" : word.c_str() + slash + 1, nullptr, 10)));
  }
}

proto::Reach::Problem problem_of(int error) {
  switch (error) {
  case ECONNREFUSED:
    return proto::Reach::REFUSED;
  case ETIMEDOUT:
    return proto::Reach::TIMED_OUT;
  default:
    return proto::Reach::UNREACHABLE;
  }
}

/// Tries a node's port for channels (the faster, second connections). The time limit is short, so
/// that probing many nodes does not take long. It is enough, because the node has just answered at
/// its first port.
void probe_channel(addrinfo to, proto::Reach& x) {
  sockaddr_storage address{};
  std::memcpy(&address, to.ai_addr, to.ai_addrlen);
  const auto port = htons(static_cast<std::uint16_t>(x.channel_port()));
  if (to.ai_family == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = port;
  else
    reinterpret_cast<sockaddr_in&>(address).sin_port = port;
  to.ai_addr = reinterpret_cast<sockaddr*>(&address);
  const int error = connect_to(to, steady_clock::now() + second_port_limit);
  x.set_channel_problem(error == 0 ? proto::Reach::REACHED : problem_of(error));
  x.set_channel_detail(error == 0 ? "" : std::generic_category().message(error));
}

/// Tries one of the addresses of a host name. Returns true if a program answers there.
bool probe_one(const addrinfo& to, std::uint16_t port, std::chrono::milliseconds limit,
               proto::Reach& x) {
  const auto deadline = steady_clock::now() + limit;
  x.set_resolved(numeric(to));
  const file_descriptor socket{
    ::socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  const int error =
    socket.get() < 0 ? errno : connect_to(socket.get(), to.ai_addr, to.ai_addrlen, deadline);
  if (error == 0) {
    understand(read_handshake(socket.get(), deadline), x);
    if (x.channel_port() != 0)
      probe_channel(to, x);
    return true;
  }
  x.set_problem(problem_of(error));
  x.set_detail(std::generic_category().message(error));
  if (error == ECONNREFUSED && is_own(to) && listens_on_loopback(port, deadline))
    x.set_problem(proto::Reach::LOOPBACK_ONLY);
  return false;
}

} // namespace

std::string identity_of(std::span<const task_name> tasks, std::uint16_t channel_port) {
  std::string result{identity_start};
  result += version();
  for (auto& x : tasks)
    result += ' ' + to_string(x);
  if (channel_port != 0)
    (result += ' ').append(channel_start) += std::to_string(channel_port);
  return result + identity_end;
}

void probe(proto::Reach& x, std::chrono::milliseconds limit) {
  std::string host;
  std::uint16_t port = 0;
  if (!split_address(x.address(), host, port) || port == 0) {
    x.set_problem(proto::Reach::UNKNOWN_PORT);
    return;
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
      error != 0) {
    x.set_problem(proto::Reach::UNRESOLVED);
    x.set_detail(::gai_strerror(error));
    return;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner{found, ::freeaddrinfo};
  for (const auto* i = found; i != nullptr; i = i->ai_next)
    if (probe_one(*i, port, limit, x))
      return;
}

void probe_all(google::protobuf::RepeatedPtrField<proto::Reach>& addresses) {
  std::atomic<int> next = 0;
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < most_at_once && i < static_cast<std::size_t>(addresses.size()); ++i)
    threads.emplace_back([&] {
      for (int k = next++; k < addresses.size(); k = next++)
        probe(addresses[k]);
    });
}

} // namespace troupe
