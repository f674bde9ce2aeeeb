#pragma once

#include "actors/model/parameter_choice.hpp"
#include "kernels/graph/graph.hpp"
#include "kernels/graph/layout.hpp"
#include "messages/proto/job.pb.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

// Models and weights that a job takes from files.

/// If the job names an ONNX file, this function reads the file and stores its structure in the job.
/// The structure is the model without the values of its weights. Nodes that receive the job then
/// need no file. Call it after loading a job, before `validate`.
///
/// The job is part of a message to each node, so the structure must be small. It is stored as gzip
/// if it has more than 64 KiB. (Masks of attention compress to less than 1%.)
/// @throws input_error like onnx_model::parse; also if the file cannot be read, or if the structure
/// has more than 2 MiB as gzip, or more than 1 GiB before.
void embed_onnx(proto::Job& job);

/// The structure that embed_onnx() stored, not compressed. Empty if the model has none.
/// @throws input_error if the stored bytes are corrupt
std::string onnx_structure_of(const proto::Model& model);

/// The entries `feature_*` and `target_*` (metadata_of) of the job's ONNX file: the scaling that
/// its model contains. Empty if the job names no ONNX file.
/// @throws input_error if the file cannot be read
std::map<std::string, std::string> scaling_of_onnx(const proto::Model& model);

/// Returns the job without the structure that embed_onnx() added, for people to read.
proto::Job without_structure(const proto::Job& job);

/// The single output of an ONNX model, for training and for testing. Both members are the same
/// expression unless differs_in_training().
struct onnx_head {
  expression training;
  expression testing;
};

/// Appends the computation of the job's ONNX model to the graph of `features`, (batch, dims...).
/// @throws input_error like import_onnx; also if the features do not fit the model's input, or if
/// the model has several inputs
/// @param choice decides for each tensor of the model whether it is trained
onnx_head add_onnx(const proto::Model& model, expression features, parameter_choice& choice);

/// The initial weights, from the file that the job names or from its ONNX model. The result is
/// empty if the initializers of the layers determine the weights.
/// @param notices receives a notice for the tensors of the file that were left out
/// @throws input_error that lists every tensor that is missing, unexpected, or of a different
/// shape; with partial_weights, like read_tensors
std::optional<std::vector<float>> initial_weights(const proto::Job& job, const layout& parameters,
                                                  std::vector<std::string>& notices);

} // namespace troupe
