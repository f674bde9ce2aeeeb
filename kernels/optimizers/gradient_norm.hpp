#pragma once

#include "kernels/graph/layout.hpp"
#include "kernels/range.hpp"

#include <span>
#include <string>

namespace troupe {

// Clipping by norm needs the Euclidean norm of the gradient of all trainable parameters. Each
// holder of a part of the flat gradient adds up the squares of that part. These sums, added in a
// fixed order, give the square of the norm.

/// Sum of squares of elements `where` of the flat gradient, without state and frozen parameters.
/// NaN if an element of state is not finite. The sum is added up in double, tensor by tensor. If
/// the vector is cut elsewhere, the last bits of the total may differ. The clipping factor then
/// differs only by rounding (a relative error below 1e-12 before it is rounded to float). The same
/// parts always give the same bits.
/// @param values where.size() elements
double squared_norm(const layout& parameters, range where, std::span<const float> values);

/// The name of the first tensor with an element in `where` that is not finite; empty if all are
/// finite.
/// @param values where.size() elements
std::string first_not_finite(const layout& parameters, range where, std::span<const float> values);

} // namespace troupe
