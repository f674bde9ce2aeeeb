#pragma once

#include "actors/model/job_context.hpp"

#include <string>
#include <vector>

namespace troupe {

/// The frozen parameters: their number, then a line for each reason with the names of tensors.
/// Empty if no parameter is frozen.
std::vector<std::string> frozen_lines(const job_context& context);

/// The groups of the optimizer: a line for each group with its parameters and settings, then a line
/// for the parameters without a group. Empty if there are no groups.
std::vector<std::string> group_lines(const job_context& context);

} // namespace troupe
