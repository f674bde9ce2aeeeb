#pragma once

#include "kernels/plan/plan.hpp"

#include <cstddef>
#include <string>

namespace troupe {

/// A plan (the instructions of a training step) as text for people, for `troupe check --plan`. Each
/// instruction has a line with its shapes, position, FLOPs, bytes and its share of all FLOPs. The
/// text also shows after which instruction each bucket (a part of the gradient that is sent as a
/// unit) is ready, the totals, and the memory. Lines have about 110 columns.
/// @param state_slots number of values that the optimizer keeps for each parameter
std::string plan_text(const plan& what, std::size_t state_slots);

} // namespace troupe
