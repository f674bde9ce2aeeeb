#pragma once

#include "actors/model/job_context.hpp"
#include "kernels/plan/plan.hpp"

#include <memory>

namespace troupe {

/// The plan of job_context::training for a GPU. Its buckets are the same.
/// @param fusion gpu_set::fusion
std::shared_ptr<const plan> gpu_plan(const job_context& context, const fusion_table& fusion);

} // namespace troupe
