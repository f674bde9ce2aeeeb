#pragma once

#include <cstdint>

namespace troupe {

/// Where a worker's replica of the weights lives between steps.
enum class residence : std::uint8_t {
  /// Weights and gradients travel in messages, in the host's memory.
  host,
  /// The weights and the optimizer's state stay in the memory of the worker's GPU.
  weights_on_gpu,
  /// The gradients stay there, too.
  gradients_on_gpu,
};

} // namespace troupe
