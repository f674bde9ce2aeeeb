#pragma once

#include "tests/kernels/numeric.hpp"

#include <vector>

namespace troupe::test {

/// As execute(), on the simulated device. Checks that the run allocates no device memory.
executed execute_on_gpu(const graph& g, const leaves& values, expression loss,
                        const std::vector<expression>& fetches, bool gradients,
                        expression correct = {});

/// Compares y with the reference for several numbers of rows, and the gradient of to_scalar(y) with
/// that of the CPU in double; in float, within `tolerance` of the largest element (ten times as
/// much for the gradient).
void check_on_gpu(const graph& g, expression y, double tolerance);

} // namespace troupe::test
