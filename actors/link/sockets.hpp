#pragma once

#include "actors/link/file_descriptor.hpp"

#include <chrono>
#include <cstdint>
#include <string>

// Sockets that do not block. What cannot be done is an empty descriptor, or throws where it says
// so.

namespace troupe {

/// Throws std::system_error with errno.
[[noreturn]] void fail_with(const std::string& what);

/// An abstract Unix socket that listens. Throws std::system_error.
file_descriptor listen_locally(const std::string& name);

/// A TCP socket that listens. Throws std::system_error.
/// @param port 0 takes a free one, which it then says
file_descriptor listen_on(const std::string& address, std::uint16_t& port);

/// A connection that waits at a listening socket.
file_descriptor accept_on(int listener);

/// Connects to an abstract Unix socket.
file_descriptor connect_locally(const std::string& name);

/// Connects by TCP, and waits until that is decided.
/// @param problem says why it could not
/// @param refused where nobody listens there
file_descriptor connect_to(const std::string& address, std::uint16_t port,
                           std::chrono::milliseconds timeout, std::string& problem, bool& refused);

/// The IP address of the other end of a TCP connection; empty for other sockets.
std::string peer_of(int socket);

} // namespace troupe
