#pragma once

#include "actors/model/parameter_choice.hpp"
#include "kernels/graph/graph.hpp"
#include "kernels/graph/layout.hpp"
#include "messages/proto/job.pb.h"

#include <optional>
#include <string>
#include <vector>

namespace troupe {

// Models and weights that a job takes from files.

/// If the job names an ONNX file, reads it and puts its structure (the model without the values of
/// its weights) into the job, so that nodes that receive the job need no file. Call it after
/// loading a job, before `validate`.
/// @throws input_error as onnx_model::parse; when the file cannot be read, or has more than 2 MiB
/// besides the weights.
void embed_onnx(proto::Job& job);

/// The job without the structure that embed_onnx() added, for people to read.
proto::Job without_structure(const proto::Job& job);

/// The only output of an ONNX model, when testing and when training. Both are the same if the model
/// has no dropout or batch normalization.
struct onnx_head {
  expression training;
  expression testing;
};

/// Appends the computation of the job's ONNX model to the graph of `features`, (batch, dims...).
/// @throws input_error as import_onnx; when the features do not fit the model's input, which must
/// be the only one
/// @param choice is asked for each of its tensors
onnx_head add_onnx(const proto::Model& model, expression features, parameter_choice& choice);

/// The initial weights: from the file that the job names, or from its ONNX model. Nothing if the
/// layers' initializers determine them.
/// @throws input_error listing every tensor that is missing, too many, or of another shape
std::optional<std::vector<float>> initial_weights(const proto::Job& job, const layout& parameters);

} // namespace troupe
