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
  /// In ONNX's order. An open dimension is onnx_constant::batch (-1).
  std::vector<std::int64_t> dims;
  dtype type = dtype::float32;
  /// True if the file's type is INT64. (The graph computes with int32.)
  bool is_int64 = false;
};

/// An output of an imported model.
struct onnx_output {
  expression x; ///< if it has a batch, the batch is the first dimension
  /// The position of the batch among the dimensions that the output has in the ONNX file.
  std::size_t batch_at = 0;
};

/// The inputs of the model, in order. A tensor with a value in the file is not an input. Throws
/// input_error if an input is not a tensor of real or whole numbers.
std::vector<onnx_port> onnx_inputs(const onnx_model& model);
std::vector<std::string> onnx_outputs(const onnx_model& model);

/// The number of rows of the table (rows, n) from which the tokens in `input` select rows (Gather).
/// The tokens may be reshaped or otherwise changed before Gather. If all tokens select from several
/// tables, the result is the smallest number of rows. If no table is used by all tokens, but some
/// by a part of them, the result is the largest number of rows of these; or 0 if some tokens become
/// real numbers (Cast), because these may be larger. 0 if there is no table.
std::size_t onnx_table_rows(const onnx_model& model, const std::string& input);

/// Returns the role of a weight in training.
using onnx_kinds = std::function<parameter_kind(const onnx_model::weight&)>;

/// Builds the model's computation in a graph. The model's weights become variables with the same
/// names (see onnx_model::weight). Its other tensors become constants.
/// @param inputs one expression for each port in onnx_inputs(), with the rank and type of the port.
/// If the port has a batch, the batch is the first dimension of the expression
/// @return one entry for each of onnx_outputs()
/// @throws input_error that names the node: an operator that troupe does not support, an attribute
/// that is not supported, shapes that do not fit, or a batch that does not stay a separate
/// dimension
/// @param training builds the computation for training. If the model was exported in training mode,
/// dropout is active and batch normalization uses the statistics of the batch. If the graph already
/// has a variable with the name of a weight, this variable is reused.
/// @param kind_of if it is empty, onnx_model::weight decides whether a weight is state, frozen or
/// trainable
std::vector<onnx_output> import_onnx(const onnx_model& model, graph& target,
                                     const std::vector<expression>& inputs, bool training = false,
                                     const onnx_kinds& kind_of = {});

/// True if import_onnx() builds different graphs for training and for testing (dropout, batch
/// normalization, embeddings with a row that gets no gradient).
bool differs_in_training(const onnx_model& model);

/// An operator that can be imported.
struct onnx_operator_text {
  std::string name;
  std::string_view kind; ///< such as "images"
  /// The first operator set that has it; 0 if ONNX does not define it.
  std::int64_t since = 1;
  std::string_view limits; ///< what is not supported; empty if there is nothing
};

/// The operators that can be imported, by kind and in alphabetical order.
std::vector<onnx_operator_text> onnx_operator_table();

} // namespace troupe
