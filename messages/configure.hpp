#pragma once

#include <cstdint>

namespace caf {
class actor_system_config;
}

namespace troupe {

/// Increase this whenever nodes of an old and a new build could misunderstand each other.
inline constexpr std::uint32_t wire_version = 10;

/// The version of this build, such as "0.1.0".
const char* version() noexcept;

/// Registers everything that an actor system needs to host troupe's actors: message types and the
/// rendering of errors. Call it once on the configuration, before you construct the actor system.
/// The type IDs of troupe start 2,000 above `caf::first_custom_type_id`, so the type IDs of your
/// program need not change. (A block of type IDs that overlaps troupe's does not compile.) This
/// function loads no module and changes no setting. A run within one actor system does not need
/// `caf::io::middleman`.
void configure(caf::actor_system_config& cfg);

/// The length, in bytes, of the longest message that this process accepts over the framework's
/// network protocol (BASP), unless limit_framework_messages() changes it. troupe's own messages are
/// shorter.
inline constexpr std::uint32_t longest_framework_message = std::uint32_t{64} << 20;

/// Sets the length, in bytes, of the longest message that this process accepts over the framework's
/// network protocol. If a peer announces a longer message, the framework closes the connection.
/// Without a limit, any program could make this process allocate 4 GiB with a header of 36 bytes,
/// because the framework allocates the announced length at once. If your program itself sends
/// longer messages, raise the limit in all processes that receive them. Thread-safe.
void limit_framework_messages(std::uint32_t bytes) noexcept;

/// Changes settings for a process that runs only troupe: scheduling for low latency, liveness
/// checks between nodes, and the processors of threads. Do not call it in an embedding program,
/// which chooses its own settings.
void tune(caf::actor_system_config& cfg);

} // namespace troupe
