#pragma once

#include "apps/troupe/bench/works.hpp"
#include "kernels/graph/dtype.hpp"

#include <cstddef>
#include <span>
#include <string_view>

namespace troupe::bench {

/// A work (a model with its batch and optimizer) for `troupe bench gpu`.
struct gpu_work {
  work what;
  /// The type of products and activations. Weights and gradients are float32.
  dtype precision = dtype::float32;
  /// Before the measurement, the losses of `checked_steps` steps are compared with the same steps
  /// on the CPU, with batches of this size. The CPU would take too long for whole batches of the
  /// largest models.
  std::size_t checked_batch = 0;
  std::size_t checked_steps = 0;
  /// The expected speed relative to PyTorch in eager mode, and relative to PyTorch with CUDA
  /// graphs. 0 if there is no expectation.
  double goal_eager = 0;
  double goal_graph = 0;
};

std::span<const gpu_work> gpu_works();

} // namespace troupe::bench
