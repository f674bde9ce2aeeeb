#pragma once

#include "kernels/cpu/sequences.hpp"
#include "kernels/cuda/device.hpp"

#include <cstddef>

namespace troupe::cuda {

// Recurrent layers. A time step is a matrix product of w and the previous h of all samples, and a
// launch that applies the gates. The first time step needs no product, because h is 0 before it.
// Products use float32, and never TF32. Formulas: kernels/graph/sequence_operations.hpp. Stored
// values: kernels/cpu/sequences.hpp.

/// The number of floats of work space that recurrent() or recurrent_gradient() needs.
std::size_t recurrence_space(const cpu::recurrence& size);

/// The forward pass over all time steps.
/// @param z (batch, time, gates * hidden): the inputs times their weights, with their biases
/// @param w (gates * hidden, hidden): the weights for the previous h
/// @param b (gates * hidden): the bias of the product with w for gru; null for other cells
/// @param states (batch, time, stored * hidden): the result
void recurrent(device& gpu, stream where, const cpu::recurrence& size, const float* z,
               const float* w, const float* b, float* states, float* space);

/// The backward pass.
/// @param dh (batch, time, hidden): the gradient of h
/// @param out (batch, time, parts * hidden): the gradients of the products
void recurrent_gradient(device& gpu, stream where, const cpu::recurrence& size, const float* dh,
                        const float* states, const float* w, float* out, float* space);

} // namespace troupe::cuda
