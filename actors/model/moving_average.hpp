#pragma once

#include "actors/model/job_context.hpp"
#include "kernels/range.hpp"

#include <cstdint>
#include <span>

namespace troupe {

/// The name of the average among the state in a checkpoint.
inline constexpr const char* moving_average_name = "moving_average";

/// Makes a step of the job's moving average (Job.moving_average) after an update of the weights:
///
///   average = average + (1 - decay) (weights - average)
///
/// After update 1, and for running statistics, the average is equal to the weights.
/// @param where the range of the parameters that are averaged; each span has its size
/// @param update number of the update, from 1, counted from the beginning of the job
/// @param before the average before the update
/// @param average may be `before`
void average_weights(const job_context& context, range where, std::uint64_t update,
                     std::span<const float> before, std::span<const float> weights,
                     std::span<float> average);

} // namespace troupe
