#pragma once

#include "actors/model/problem_list.hpp"
#include "messages/proto/job.pb.h"

#include <cstddef>
#include <string>

namespace troupe {

/// The number of inputs that a layer may have.
struct input_count {
  std::size_t least = 1;
  std::size_t most = 1;
  std::string text = "one input";
};

/// The number of inputs that a layer of this kind may have.
input_count inputs_needed(const proto::Layer& layer);

/// Adds the problems of a layer's fields to `problems`, except problems of its name and inputs.
/// Shapes are checked when the model is built.
/// @param path the path of the layer: "model.layer[0]".
void check_layer(const proto::Layer& layer, const std::string& path, problem_list& problems);

} // namespace troupe
