#pragma once

#include "actors/model/job_context.hpp"

#include <string>
#include <vector>

namespace troupe {

/// Describes the frozen parameters: those that are not trained. The first line has the number of
/// these parameters. Then follows a line for each reason for freezing, with the names of the
/// tensors. Empty if no parameter is frozen.
std::vector<std::string> frozen_lines(const job_context& context);

/// Describes the parameter groups of the optimizer. Each group has a line with its parameters and
/// settings. The last line is about the parameters without a group. Empty if there are no groups.
std::vector<std::string> group_lines(const job_context& context);

} // namespace troupe
