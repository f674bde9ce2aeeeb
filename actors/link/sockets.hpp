#pragma once

#include "actors/link/file_descriptor.hpp"

#include <chrono>
#include <cstdint>
#include <string>

// Sockets that do not block. A failure gives an empty descriptor, unless the function throws, as
// stated there.

namespace troupe {

/// Throws std::system_error with errno.
[[noreturn]] void fail_with(const std::string& what);

/// An abstract Unix socket that listens. Throws std::system_error.
file_descriptor listen_locally(const std::string& name);

/// A TCP socket that listens. Throws std::system_error.
/// @param port 0 takes a free port, and is set to it
file_descriptor listen_on(const std::string& address, std::uint16_t& port);

/// A connection that waits at a listening socket.
file_descriptor accept_on(int listener);

/// Connects to an abstract Unix socket.
file_descriptor connect_locally(const std::string& name);

/// Connects by TCP. Waits for success, failure, or the timeout.
/// @param problem set to the reason of a failure
/// @param refused set after a failure: nothing listens at the address
file_descriptor connect_to(const std::string& address, std::uint16_t port,
                           std::chrono::milliseconds timeout, std::string& problem, bool& refused);

/// The IP address of the other end of a TCP connection; empty for other sockets.
std::string peer_of(int socket);

} // namespace troupe
