#pragma once

#include "kernels/file_descriptor.hpp"

#include <chrono>
#include <cstdint>
#include <string>

// Functions that make non-blocking sockets. Some throw an exception if they fail, as their comments
// say. The others return an empty descriptor.

namespace troupe {

/// Throws std::system_error with errno and this text.
[[noreturn]] void fail_with(const std::string& what);

/// Makes an abstract Unix socket that listens. Throws std::system_error.
file_descriptor listen_locally(const std::string& name);

/// Stands for all addresses of this host, IPv4 and IPv6.
inline constexpr const char* any_address = "*";

/// Makes a TCP socket that listens. If a name has several addresses, it listens on the first
/// address that belongs to this host. Throws std::system_error.
/// @param port 0 selects a free port; the function sets it to the actual port
file_descriptor listen_on(const std::string& address, std::uint16_t& port);

/// Accepts a connection that waits at a listening socket. The connection may be broken already.
/// @param peer set to the IP address of the other end of a TCP connection, as IPv4 if both ends
/// have IPv4; empty for other sockets
file_descriptor accept_on(int listener, std::string& peer);

/// Connects to an abstract Unix socket.
file_descriptor connect_locally(const std::string& name);

/// Connects by TCP. Waits until this succeeds, fails, or times out. If a name has several
/// addresses, tries one after the other.
/// @param timeout for all addresses together. Resolving the name is not limited.
/// @param problem set to the reason of the failure
/// @param refused set to true if the connection failed because nothing listens at the address
file_descriptor connect_to(const std::string& address, std::uint16_t port,
                           std::chrono::milliseconds timeout, std::string& problem, bool& refused);

/// Waits until data has arrived, or the other end has closed the connection. Returns false if
/// neither happens within `timeout`.
bool has_data(int socket, std::chrono::milliseconds timeout);

/// The IP address of the other end of a TCP connection; empty if the connection is broken.
std::string peer_of(int socket);

/// True if both ends of a TCP connection have the same IP address, so that they are on one host.
bool has_equal_ends(int socket);

} // namespace troupe
