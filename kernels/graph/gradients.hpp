#pragma once

#include "kernels/graph/graph.hpp"

#include <span>
#include <vector>

namespace troupe {

/// d y / d x for each x of `xs`, as nodes appended to the graph of y (reverse mode; Baydin et al.,
/// 2018). Throws input_error if y is not a scalar. Only nodes between some x and y get a gradient.
/// If y does not depend on an x, its gradient is a constant 0. Like any other expression, the
/// result can be printed, planned and differentiated again.
///
/// Nodes are appended in backward order, so the gradients of the last layers come first.
///
/// @param seed a scalar that multiplies all gradients, such as a loss scale; 1 if not valid. Throws
/// input_error if it is no scalar of the same graph.
std::vector<expression> gradients(expression y, std::span<const expression> xs,
                                  expression seed = {});

} // namespace troupe
