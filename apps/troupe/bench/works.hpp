#pragma once

#include "kernels/graph/graph.hpp"
#include "kernels/optimizers/optimizer.hpp"

#include <cstddef>
#include <span>
#include <string_view>

namespace troupe::bench {

/// A model with its batch and optimizer, for `troupe bench train`. The names of its tensors are
/// those of the equivalent PyTorch module (torch_peer.py).
struct work {
  std::string_view name;
  std::string_view what;
  std::size_t batch;
  /// Inputs per sample: numbers, or ids below `classes` if the model begins with an embedding.
  std::size_t inputs;
  bool takes_ids;
  /// Labels per sample: one, or one per position of a sequence.
  std::size_t labels;
  std::size_t classes;
  optimizer rule;
  double rate;
  /// Builds the model, from inputs (batch, inputs) to logits (batch, classes) or (batch, labels,
  /// classes).
  expression (*build)(expression inputs);
};

std::span<const work> works();

} // namespace troupe::bench
