#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

namespace onnx {
class GraphProto;
} // namespace onnx

namespace troupe {

/// Decides which initializers of a model are trained, and which are buffers: position tables,
/// masks, constants. ONNX itself does not say. The rules, in this order:
///
/// 1. PyTorch's exporter (dynamo=True, from 2.5 on) says PARAMETER, BUFFER or CONSTANT_TENSOR of
///    each tensor, in the metadata of its value_info.
/// 2. Trained is what an operator takes as its weights: operands of Gemm, MatMul, Conv and
///    ConvTranspose, tensors of RNN, LSTM and GRU, scales and shifts of normalizations, slopes of
///    PRelu, the table from which Gather takes rows by numbers of the data. They may be transposed,
///    cut or put together before.
/// 3. Trained is a vector that is added to what Gemm, MatMul, Conv or ConvTranspose makes with such
///    weights: a bias.
/// 4. Trained is what its name calls a weight: "weight" or "bias" in the part after the last dot,
/// or
///    that part is "gamma" or "beta"; "ReadVariableOp" anywhere (TensorFlow's variables).
///
/// All others keep their values. The constructor reads the graph; it keeps no reference.
class onnx_roles {
public:
  explicit onnx_roles(const onnx::GraphProto& graph);

  /// For people; empty where the initializer is trained.
  std::string why_it_stays(const std::string& name) const;

  /// Whether the first rule has another answer than the others.
  bool decided_by_exporter(const std::string& name) const;

private:
  bool trained_by_use(const std::string& name) const;

  /// What the exporter says of tensors.
  std::map<std::string, std::string, std::less<>> said_;
  std::set<std::string, std::less<>> weights_;
};

} // namespace troupe
