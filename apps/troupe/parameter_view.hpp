#pragma once

#include "actors/model/job_context.hpp"

#include <string>
#include <vector>

namespace troupe {

/// Frozen parameters: how many of all, then a line per reason with the names of tensors. Empty
/// where all are trained.
std::vector<std::string> frozen_lines(const job_context& context);

/// The groups of the optimizer: a line for each with its parameters and settings, then one for
/// those without a group. Empty where there are no groups.
std::vector<std::string> group_lines(const job_context& context);

} // namespace troupe
