#pragma once

#include "kernels/plan/plan.hpp"

#include <cstddef>
#include <string>

namespace troupe {

/// A plan for people, for `troupe check --plan`: a line per instruction with shapes, place, FLOPs,
/// bytes and its share of all FLOPs; where buckets of the gradient become ready; totals; memory.
/// Lines have about 110 columns.
/// @param state_slots tensors that the optimizer keeps per parameter
std::string plan_text(const plan& what, std::size_t state_slots);

} // namespace troupe
