#pragma once

#include "actors/model/problem_list.hpp"
#include "messages/proto/job.pb.h"

#include <cstddef>
#include <string>
#include <vector>

namespace troupe {

/// A layer of a model whose blocks are unrolled.
struct listed_layer {
  const proto::Layer* layer = nullptr;
  /// The layer's name, such as "dense_1", or "h.0.attn" in a block.
  std::string name;
  /// The layer's path in the job: "model.layer[1].block.layer[0]".
  std::string path;
  /// The layer's inputs: positions in the list plus 1, or 0 for the features.
  std::vector<std::size_t> inputs;
};

/// Largest number of layers of a model. A layer of a block counts once for each repetition of the
/// block.
inline constexpr std::size_t most_layers = 4096;

/// Lists the layers in the order of computation, so that each layer reads only earlier layers. The
/// last layer produces the output. The result refers to `model`.
///
/// Adds to `problems`: names that are missing, invalid, reserved, or used by another layer; inputs
/// that are unknown, or defined further down in the list; a wrong number of inputs for the kind;
/// layers that have no kind; layers that no other layer reads; numbers out of range; blocks that
/// are empty or nested too deeply; too many layers. If there are problems, the list must not be
/// used.
std::vector<listed_layer> list_layers(const proto::Model& model, problem_list& problems);

/// Like the function above, but throws input_error with all problems.
std::vector<listed_layer> list_layers(const proto::Model& model);

/// The name of a layer in a list of layers: its own name, or kind and position, such as "dense_1".
std::string layer_name(const proto::Layer& layer, int index);

/// The kind of the layer, such as "conv2d"; empty if it has none.
std::string layer_kind(const proto::Layer& layer);

/// " (line 12)" if the layer's line in the job file is known, otherwise empty.
std::string at_line(const proto::Layer& layer);

} // namespace troupe
