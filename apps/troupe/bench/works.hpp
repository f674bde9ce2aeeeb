#pragma once

#include "kernels/graph/graph.hpp"
#include "kernels/optimizers/optimizer.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace troupe::bench {

/// A model with its batch and optimizer, for `troupe bench train`. Its tensors have the same names
/// as in the equivalent PyTorch module (torch_peer.py).
struct work {
  std::string_view name;
  std::string_view what;
  std::size_t batch;
  /// Number of inputs per sample. Inputs are numbers. If `takes_ids`, they are ids below `classes`
  /// instead, because the model begins with an embedding.
  std::size_t inputs;
  bool takes_ids;
  /// Number of labels per sample: 1, or one for each position of a sequence.
  std::size_t labels;
  std::size_t classes;
  optimizer rule;
  double rate;
  /// Builds the model, from inputs (batch, inputs) to logits (batch, classes) or (batch, labels,
  /// classes).
  expression (*build)(expression inputs);
};

std::span<const work> works();

struct transformer_sizes {
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;
  std::int64_t width = 0;
  int layers = 0;
  std::int64_t heads = 0;
  /// True if the output layer uses the weights of the embedding.
  bool shares_head = false;
};

/// A model like GPT-2, from ids (batch, context) to logits (batch, context, vocabulary).
expression transformer(expression ids, const transformer_sizes& size);

} // namespace troupe::bench
