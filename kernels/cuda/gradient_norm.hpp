#pragma once

#include "kernels/plan/plan.hpp"
#include "kernels/range.hpp"

#include <vector>

// Internal to the executor: the norm of a gradient that stays on the device.

namespace troupe::cuda {

struct executor_state;

/// A part of the gradient, whose squares are added up together.
struct norm_part {
  range where;
  /// False for statistics of layers. Statistics are not part of the norm, but they must be finite.
  bool counts = true;
};

/// The parts of the plan's gradient. Frozen parameters are in no part. Empty for a plan without
/// gradients.
std::vector<norm_part> norm_parts_of(const plan& what);

/// Submits kernels that compute the sum of squares of each part.
void submit_norm(executor_state& s);

/// Computes run_result::squared_norm. The sums of squares must have arrived in the host's memory.
double squared_norm_of(const executor_state& s);

} // namespace troupe::cuda
