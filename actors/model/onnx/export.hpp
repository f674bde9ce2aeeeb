#pragma once

#include "actors/model/data_builder.hpp"
#include "kernels/graph/graph.hpp"

#include <map>
#include <optional>
#include <span>
#include <string>

namespace troupe {

/// The scaling of data before and after a model. It becomes a part of the file, whose input is
/// unscaled features and whose output has the units of the targets.
struct onnx_surroundings {
  /// Scaling of the features, before the model.
  std::optional<feature_scaling> features = std::nullopt;
  /// Scaling of the targets: output * scale + mean, after the model; used if the model's outputs
  /// are targets.
  std::optional<column_scaling> targets = std::nullopt;
  /// Texts by name for the file's metadata_props.
  std::map<std::string, std::string> metadata = {};
};

/// Writes the part of a graph from `input` to `output` as a model in the ONNX format (operator set
/// 17). Input and output are named "features" and "output" unless a variable has such a name. The
/// batch may have any size. Variables keep their names, shapes and order of elements, so the model
/// can be trained further, here or elsewhere. If ONNX needs weights in another order (gates of
/// recurrent layers), nodes of the model reorder them.
/// @param weights the flat parameter vector of the graph
/// @param name of the model, for people
/// @return the bytes of the file
/// @throws input_error if the output depends on other placeholders, if ONNX has no such operation
/// (gradients), or if the file would exceed 2 GiB
std::string export_onnx(expression input, expression output, std::span<const float> weights,
                        const std::string& name, const onnx_surroundings& around = {});

} // namespace troupe
