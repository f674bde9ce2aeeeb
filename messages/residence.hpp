#pragma once

#include <cstdint>

namespace troupe {

/// Where a worker's copy of the weights, and its gradients, are between steps.
enum class residence : std::uint8_t {
  /// Weights and gradients are in the host's memory, and travel in messages.
  host,
  /// The weights and the optimizer's state stay in the memory of the worker's GPU. Gradients travel
  /// in messages.
  weights_on_gpu,
  /// The weights, the optimizer's state and the gradients stay in the memory of the worker's GPU.
  gradients_on_gpu,
};

} // namespace troupe
