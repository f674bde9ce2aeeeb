#pragma once

#include "kernels/graph/layout.hpp"
#include "kernels/range.hpp"

#include <span>
#include <string>
#include <vector>

namespace troupe {

// Clipping by norm needs the Euclidean norm of the gradient of all trainable parameters. The flat
// gradient may be divided among several tasks. Each task computes the sum of squares of its part.
// The total of these sums, added in a fixed order, is the square of the norm.

/// Returns the sum of squares of the part `where` of the flat gradient. State and frozen parameters
/// are not included. However, the result is NaN if an element of state is not finite.
///
/// The sum is computed in double, tensor by tensor. The same parts always give the same bits. If
/// the vector is divided differently, the last bits of the total may differ. The relative error of
/// the clipping factor is then below 1e-12, before the factor is rounded to float.
/// @param values the where.size() elements of the part
double squared_norm(const layout& parameters, range where, std::span<const float> values);

/// The same sum over several parts, which do not overlap and are in ascending order. For a gradient
/// that is 0 in all other elements of `where`, this is squared_norm(parameters, where, values),
/// except for rounding. The time does not depend on the other elements.
/// @param parts relative to where.begin
double squared_norm(const layout& parameters, range where, std::span<const float> values,
                    const range_list& parts);

/// A part of a gradient whose squares are added up together.
struct norm_part {
  range where;
  /// False for statistics of layers. Statistics are not part of the norm, but they must be finite.
  bool counts = true;
};

/// The parts of the range `where` of the flat gradient. They are as long as possible, and their
/// positions are relative to where.begin. Frozen parameters are in no part.
std::vector<norm_part> norm_parts_of(const layout& parameters, range where);

/// The squared norm. It is NaN if an element of a part is not finite.
/// @param squares the sum of squares of each part
double squared_norm(std::span<const norm_part> parts, std::span<const double> squares);

/// The name of the first tensor with an element in `where` that is not finite. Empty if all
/// elements are finite.
/// @param values the where.size() elements of the part
/// @param parts the elements to look at, relative to where.begin; all elements if it is left out
std::string first_not_finite(const layout& parameters, range where, std::span<const float> values);
std::string first_not_finite(const layout& parameters, range where, std::span<const float> values,
                             const range_list& parts);

} // namespace troupe
