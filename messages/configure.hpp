#pragma once

#include <cstdint>

namespace caf {
class actor_system_config;
}

namespace troupe {

/// Increased whenever nodes of the old and the new build could misunderstand each other.
inline constexpr std::uint32_t wire_version = 5;

/// Of this build, such as "0.1.0".
const char* version() noexcept;

/// Registers everything that an actor system needs to host troupe's actors: message types, the
/// rendering of errors. Call it once, on the configuration, before the actor system is constructed.
/// Types of the embedding program stay as they are: our type IDs start 2,000 above
/// `caf::first_custom_type_id` (blocks that overlap do not compile). Loads no module and sets
/// nothing: runs within one actor system need no `caf::io::middleman`.
void configure(caf::actor_system_config& cfg);

/// Settings for a process that runs only troupe: scheduling for latency, and liveness checks
/// between nodes. An embedding program decides for itself.
void tune(caf::actor_system_config& cfg);

} // namespace troupe
