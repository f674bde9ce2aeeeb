#pragma once

#include "kernels/data/normalized.hpp"
#include "kernels/data/table.hpp"
#include "kernels/graph/graph.hpp"

#include <map>
#include <optional>
#include <span>
#include <string>

namespace troupe {

/// The scaling of the data before and after a model. The scaling becomes a part of the file, so
/// that the file's input is unscaled features, and its output has the units of the targets.
struct onnx_surroundings {
  /// Scaling of the features, before the model.
  std::optional<feature_scaling> features = std::nullopt;
  /// Scaling of the targets, applied after the model: output * scale + mean. Only for a model that
  /// predicts targets, and not classes.
  std::optional<column_scaling> targets = std::nullopt;
  /// True if tokens have the type INT64 in the file, and not INT32.
  bool int64_tokens = false;
  /// Entries for the file's metadata_props.
  std::map<std::string, std::string> metadata = {};
};

/// A model as ONNX.
struct exported_onnx {
  /// The bytes of the file.
  std::string bytes;
  /// The names of the model's input and output.
  std::string input;
  std::string output;
};

/// Writes the part of a graph from `input` to `output` as an ONNX model (operator set 17). The
/// input is named "features" and the output "output", unless a variable already has that name. The
/// batch may have any size. Variables keep their names, shapes and order of elements, so that the
/// model can be trained further, with troupe or elsewhere. ONNX needs some weights in another order
/// (gates of recurrent layers); the file then contains nodes that reorder them.
/// @param weights the flat parameter vector of the graph
/// @param name the name of the model, for people
/// @throws input_error if the output depends on other placeholders, if ONNX lacks an operation
/// (gradients), or if the file would exceed 2 GiB
exported_onnx export_onnx(expression input, expression output, std::span<const float> weights,
                          const std::string& name, const onnx_surroundings& around = {});

} // namespace troupe
