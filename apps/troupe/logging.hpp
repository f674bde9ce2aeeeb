#pragma once

#include "actors/output/run_report.hpp"

#include <string>

namespace troupe {

/// Sends the log of this process to standard error. Call it before the actor system starts.
/// @param level the lowest level that is shown: trace, debug, info, warn, error or off. If empty,
/// the level is info and the lines have no time stamps.
/// @param name the name at the beginning of each line, so that several processes can write to the
/// same terminal; may be empty
/// @throws input_error for an unknown level
void start_logging(const std::string& level, const std::string& name);

void log_notice(const run_notice& x);

} // namespace troupe
