#pragma once

#include "kernels/graph/layout.hpp"
#include "kernels/range.hpp"

#include <span>
#include <string>

namespace troupe {

// What clipping by norm needs of the gradient: the Euclidean norm of all trainable parameters.
// Each holder of a part of the flat gradient adds up the squares of that part; the parts, added in
// a fixed order, give the square of the norm.

/// Sum of squares of elements `where` of the flat gradient, those of state and of frozen parameters
/// left out. Added up in
/// double, by tensor: parts that are cut elsewhere may differ in the last bits of their sum, so a
/// clipped gradient is that of one uncut vector, except for rounding of the factor (a relative
/// error below 1e-12 before it is rounded to float). The same parts always have the same bits.
/// @param values where.size() elements
double squared_norm(const layout& parameters, range where, std::span<const float> values);

/// The name of the first tensor that has an element in `where` that is not finite; empty where all
/// are.
/// @param values where.size() elements
std::string first_not_finite(const layout& parameters, range where, std::span<const float> values);

} // namespace troupe
