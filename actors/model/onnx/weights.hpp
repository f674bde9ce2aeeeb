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
/// 1. PyTorch's exporter (dynamo=True, from 2.5 on) marks each tensor as PARAMETER, BUFFER or
///    CONSTANT_TENSOR in the metadata of its value_info. A PARAMETER is trained.
/// 2. The weights of an operator are trained: operands of Gemm, MatMul, Conv and ConvTranspose,
///    tensors of RNN, LSTM and GRU, scales and shifts of normalizations, slopes of PRelu, a table
///    from which Gather takes rows by numbers of the data. They may be transposed, cut or put
///    together before.
/// 3. A vector that is added to a product with such weights is a bias, and is trained.
/// 4. A tensor with a weight's name is trained: the part after the last dot contains "weight" or
///    "bias", or is "gamma" or "beta"; or the name contains "ReadVariableOp" (TensorFlow).
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
