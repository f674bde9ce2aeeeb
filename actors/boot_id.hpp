#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// A text that identifies this host and changes with each boot. Empty if the system has none.
std::string boot_id();

/// boot_id() as a number; 0 if the system has no such text. All processes with the same number read
/// the same steady clock.
std::uint64_t boot_number();

} // namespace troupe
