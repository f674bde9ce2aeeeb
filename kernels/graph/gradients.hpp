#pragma once

#include "kernels/graph/graph.hpp"

#include <span>
#include <vector>

namespace troupe {

/// Differentiates y with respect to each x of `xs`: appends nodes that compute d y / d x to the
/// graph of y (reverse mode; Baydin et al., 2018). Only nodes between some x and y get a gradient.
/// If y does not depend on an x, the gradient for this x is a constant 0. Like any other
/// expression, a gradient can be printed, planned and differentiated again. Throws input_error if y
/// is not a scalar, if an x belongs to another graph, or if an operation between x and y cannot be
/// differentiated.
///
/// The nodes are appended in backward order: the gradients of the last layers first.
///
/// @param seed a factor of all gradients, such as a loss scale. It must be a scalar of the same
/// graph; otherwise, input_error is thrown. If it is not valid(), the factor is 1.
std::vector<expression> gradients(expression y, std::span<const expression> xs,
                                  expression seed = {});

} // namespace troupe
