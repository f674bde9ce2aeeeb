#pragma once

#include "kernels/plan/plan.hpp"
#include "kernels/range.hpp"

#include <vector>

// Internal to the executor: the norm of a gradient that stays on the device.

namespace troupe::cuda {

struct executor_state;

/// Neighbouring elements of the gradient whose squares are added up.
struct norm_part {
  range where;
  /// False for statistics of layers, which only need to be finite.
  bool counts = true;
};

/// Nothing for a plan without gradients.
std::vector<norm_part> norm_parts_of(const plan& what);

/// Submits the sums of squares of all parts.
void submit_norm(executor_state& s);

/// run_result::squared_norm, when these sums are in the host's memory.
double squared_norm_of(const executor_state& s);

} // namespace troupe::cuda
