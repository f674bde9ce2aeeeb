#pragma once

#include "kernels/graph/layout.hpp"
#include "kernels/range.hpp"

#include <span>
#include <string>

namespace troupe {

// Clipping by norm needs the Euclidean norm of the gradient of all trainable parameters. The flat
// gradient may be divided among several tasks. Each task computes the sum of squares of its part.
// These sums, added in a fixed order, give the square of the norm.

/// Returns the sum of squares of the elements `where` of the flat gradient. State and frozen
/// parameters are not included. However, the result is NaN if an element of state is not finite.
/// The sum is computed in double, tensor by tensor. The same parts always give the same bits. If
/// the vector is divided at other places, the last bits of the total may differ. The clipping
/// factor then differs only by rounding: its relative error is below 1e-12, before it is rounded to
/// float.
/// @param values where.size() elements
double squared_norm(const layout& parameters, range where, std::span<const float> values);

/// The name of the first tensor with an element in `where` that is not finite; empty if all are
/// finite.
/// @param values where.size() elements
std::string first_not_finite(const layout& parameters, range where, std::span<const float> values);

} // namespace troupe
