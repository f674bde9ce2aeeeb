#pragma once

#include "kernels/graph/graph.hpp"

#include <span>
#include <vector>

namespace troupe {

/// d y / d x for each x of `xs`, as nodes appended to the graph of y (reverse mode; Baydin et al.,
/// 2018). Throws input_error if y is not a scalar. Only nodes between some x and y get a gradient;
/// an x that y does not depend on gets a constant 0. The result can be printed, planned and
/// differentiated again like anything else.
///
/// Nodes are appended in backward order, so the gradients of the last layers come first.
std::vector<expression> gradients(expression y, std::span<const expression> xs);

} // namespace troupe
