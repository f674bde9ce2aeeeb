#pragma once

#include "kernels/graph/layout.hpp"
#include "kernels/range.hpp"

#include <span>

namespace troupe {

/// Rounds the trainable parameters in a part of a flat vector to the nearest bfloat16
/// (kernels/narrow_float.hpp). State and frozen parameters keep their values.
/// @param values the where.size() elements of the part
void round_to_bfloat16(const layout& parameters, range where, std::span<float> values);

/// out[i] = x[i], rounded like above. Both spans have where.size() elements.
void round_to_bfloat16(const layout& parameters, range where, std::span<const float> x,
                       std::span<float> out);

} // namespace troupe
