#pragma once

#include "kernels/graph/graph.hpp"

#include <cstddef>
#include <vector>

namespace troupe::test {

/// The value of a node of kernels/graph/sequence_operations.hpp, computed from the values of its
/// inputs.
std::vector<double> sequence_value(const graph& g, const node& n,
                                   const std::vector<std::vector<double>>& inputs,
                                   std::size_t batch);

} // namespace troupe::test
