#pragma once

#include "actors/output/run_report.hpp"

#include <string>

namespace troupe {

/// Sends the log of this process to standard error. Call it before the actor system starts.
/// @param level least level of the lines that are shown: trace, debug, info, warn, error or off.
/// Empty: info, as plain text for people, without time stamps.
/// @param name is printed before each line, for several processes that write to one terminal; may
/// be empty.
/// @throws input_error for an unknown level.
void start_logging(const std::string& level, const std::string& name);

/// A line for a notice.
void log_notice(const run_notice& x);

} // namespace troupe
