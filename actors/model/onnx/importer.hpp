#pragma once

#include "actors/model/onnx/model.hpp"
#include "kernels/graph/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// An input or output of an ONNX model.
struct onnx_port {
  std::string name;
  /// In ONNX's order; onnx_constant::batch (-1) for open dimensions.
  std::vector<std::int64_t> dims;
  dtype type = dtype::float32;
};

/// An output of a model that was imported.
struct onnx_output {
  expression x; ///< the batch in front, if it has one
  /// The dimension of the model's own output that is the batch.
  std::size_t batch_at = 0;
};

/// The inputs of the model, in order. A tensor with a value in the file is not an input. Throws
/// input_error for an input that is not a tensor of real or whole numbers.
std::vector<onnx_port> onnx_inputs(const onnx_model& model);
std::vector<std::string> onnx_outputs(const onnx_model& model);

/// What becomes of a weight in training.
using onnx_kinds = std::function<parameter_kind(const onnx_model::weight&)>;

/// Builds the model's computation in a graph. Its weights become variables of their names (see
/// onnx_model::weight); other tensors that it holds are constants.
/// @param inputs one expression per onnx_inputs(), of its rank and type, the batch in front where
/// it has one
/// @return one per onnx_outputs()
/// @throws input_error naming the node: an operator that troupe does not have (with a list of all
/// that it has), an attribute that it does not support, shapes that do not fit, a batch that does
/// not stay a dimension of its own
/// @param training builds the training computation: if the model was exported in training mode,
/// dropout drops, and batch normalization uses the batch's statistics. Variables that the graph
/// already has by these names are used again.
/// @param kind_of without it, weights are state, frozen or trainable as onnx_model::weight says
std::vector<onnx_output> import_onnx(const onnx_model& model, graph& target,
                                     const std::vector<expression>& inputs, bool training = false,
                                     const onnx_kinds& kind_of = {});

/// Whether training and testing differ.
bool differs_in_training(const onnx_model& model);

/// The operators that can be imported, in alphabetical order.
std::vector<std::string> onnx_operator_names();

} // namespace troupe
