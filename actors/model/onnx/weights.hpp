#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace google::protobuf {
class MessageLite;
} // namespace google::protobuf

namespace onnx {
class GraphProto;
class ValueInfoProto;
} // namespace onnx

namespace troupe {

/// The number of the field metadata_props in a ValueInfoProto.
inline constexpr int value_metadata = 4;

/// The keys and values of a message's metadata_props. Older schemas of ONNX lack this field, so it
/// is read as an unknown field.
/// @param field the number of the field in this message
std::vector<std::pair<std::string, std::string>>
onnx_metadata(const google::protobuf::MessageLite& message, int field);

/// Writes the mark `kind` for a tensor, in the format of PyTorch's exporter (see onnx_roles).
void mark_tensor(const std::string& name, const std::string& kind, onnx::ValueInfoProto& mark);

/// Decides which initializers of a model are trained. The other initializers are buffers: position
/// tables, masks, constants. An ONNX file itself does not distinguish weights from buffers. These
/// rules apply, in this order:
///
/// 1. PyTorch's exporter (dynamo=True, from 2.5 on) marks each tensor as PARAMETER, BUFFER or
///    CONSTANT_TENSOR in the metadata of its value_info. A PARAMETER is trained.
/// 2. The weights of an operator are trained: operands of Gemm, MatMul, Einsum, Conv and
///    ConvTranspose, tensors of RNN, LSTM and GRU, scales and shifts of normalizations, slopes of
///    PRelu (in TensorFlow, factors of relu(-x)), and tables from which Gather takes rows that the
///    data selects. These weights may first be transposed, sliced or concatenated.
/// 3. A vector that is added to a product with such weights is a bias, and is trained. The elements
///    of the product may have been moved or padded before. A tensor that multiplies the reciprocal
///    of a square root of the data (1 / deviation) is the scale of a normalization. So is a tensor
///    that multiplies the result of an InstanceNormalization whose own scale is not an initializer.
///    A tensor of the same shape that is added to a product with this scale is the shift. Scale and
///    shift are trained.
/// 4. A tensor whose name is typical of weights is trained. In such a name, the part after the last
///    dot contains "weight" or "bias", or is "gamma" or "beta"; or the name contains
///    "ReadVariableOp" (TensorFlow). In PyTorch's "parametrizations.weight.original0", the part
///    before the last dot counts.
///
/// All other initializers keep their values. The constructor reads the graph and keeps no reference
/// to it.
class onnx_roles {
public:
  explicit onnx_roles(const onnx::GraphProto& graph);

  /// The reason why an initializer is not trained, for people; empty if it is trained.
  std::string why_it_stays(const std::string& name) const;

  /// True if the mark of PyTorch's exporter decides whether this tensor is trained, against the
  /// other rules (see the comment of this class).
  bool decided_by_exporter(const std::string& name) const;

  /// True if PyTorch's exporter marks this tensor as a parameter or buffer.
  bool is_stored_by_pytorch(const std::string& name) const;
  /// True if PyTorch's exporter marked at least one tensor.
  bool has_marks() const noexcept { return !said_.empty(); }

private:
  bool trained_by_use(const std::string& name) const;

  /// The marks of PyTorch's exporter on tensors, by name.
  std::map<std::string, std::string, std::less<>> said_;
  std::set<std::string, std::less<>> weights_;
};

} // namespace troupe
