#pragma once

#include "kernels/cpu/sequences.hpp"
#include "kernels/cuda/stream.hpp"

#include <cstddef>

namespace troupe::cuda {

// Recurrent layers: one launch goes through all time steps. Samples are independent of each other,
// so each block takes its own. Formulas: kernels/graph/sequence_operations.hpp; values:
// kernels/cpu/sequences.hpp.

/// Work space of a recurrence or of its gradient, in floats.
std::size_t recurrence_space(const cpu::recurrence& size);

/// states (batch, time, stored * hidden) from z (batch, time, gates * hidden), w (gates * hidden,
/// hidden) and b (gates * hidden; null unless gru).
void recurrent(stream where, const cpu::recurrence& size, const float* z, const float* w,
               const float* b, float* states, float* space);

/// out (batch, time, parts * hidden) from dh (batch, time, hidden).
void recurrent_gradient(stream where, const cpu::recurrence& size, const float* dh,
                        const float* states, const float* w, float* out, float* space);

} // namespace troupe::cuda
