#include "actors/model/onnx/weights.hpp"

#include <google/protobuf/empty.pb.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cctype>
#include <unordered_map>
#include <unordered_set>

namespace troupe {

namespace {

constexpr auto kind_key = "pkg.torch.export.graph_signature.InputSpec.kind";

} // namespace

std::vector<std::pair<std::string, std::string>>
onnx_metadata(const google::protobuf::MessageLite& message, int metadata_props) {
  std::vector<std::pair<std::string, std::string>> result;
  google::protobuf::Empty all;
  if (!all.ParseFromString(message.SerializeAsString()))
    return result;
  const auto& fields = all.GetReflection()->GetUnknownFields(all);
  for (int i = 0; i < fields.field_count(); ++i) {
    const auto& field = fields.field(i);
    onnx::StringStringEntryProto entry;
    if (field.number() == metadata_props
        && field.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED
        && entry.ParseFromString(field.length_delimited()))
      result.emplace_back(entry.key(), entry.value());
  }
  return result;
}

void mark_tensor(const std::string& name, const std::string& kind, onnx::ValueInfoProto& mark) {
  onnx::StringStringEntryProto entry;
  entry.set_key(kind_key);
  entry.set_value(kind);
  google::protobuf::Empty fields;
  fields.GetReflection()->MutableUnknownFields(&fields)->AddLengthDelimited(
    value_metadata, entry.SerializeAsString());
  mark.set_name(name);
  mark.MergeFromString(fields.SerializeAsString());
}

namespace {

using name_set = std::set<std::string, std::less<>>;

/// The mark of PyTorch's exporter on a tensor, such as "PARAMETER". Empty if there is none.
std::string kind_in(const onnx::ValueInfoProto& x) {
  for (auto& [key, value] : onnx_metadata(x, value_metadata))
    if (key == kind_key)
      return value;
  return {};
}

/// True if an operator only moves elements of its inputs.
bool only_moves(const std::string& op) {
  static const name_set all{"Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten",
                            "Cast",     "Concat",    "Slice",   "Split",   "Expand",    "Tile"};
  return all.contains(op);
}

bool is_product(const std::string& op) {
  return op == "Gemm" || op == "MatMul" || op == "Einsum" || op == "Conv" || op == "ConvTranspose";
}

/// True if an operator uses this input as weights.
bool takes_weights(const std::string& op, int input) {
  static const name_set recurrent{"RNN", "LSTM", "GRU"};
  static const name_set normalizations{"BatchNormalization", "LayerNormalization",
                                       "InstanceNormalization", "GroupNormalization",
                                       "RMSNormalization"};
  if (recurrent.contains(op))
    return input >= 1 && input <= 3;
  if (normalizations.contains(op))
    return input == 1 || input == 2;
  return is_product(op) || (op == "PRelu" && input == 1);
}

bool is_vector(const onnx::TensorProto& x) {
  return std::ranges::count_if(x.dims(), [](auto extent) { return extent != 1; }) <= 1;
}

bool named_as_weight(std::string name) {
  // PyTorch's parametrizations store the parts of a weight:
  // "linear.parametrizations.weight.original0".
  if (const auto part = name.rfind(".original");
      part != std::string::npos && name.rfind("parametrizations.", part) != std::string::npos)
    name.resize(part);
  auto last = name.substr(name.rfind('.') + 1);
  std::ranges::transform(last, last.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return last.find("weight") != std::string::npos || last.find("bias") != std::string::npos
    || last == "gamma" || last == "beta" || name.find("ReadVariableOp") != std::string::npos;
}

/// Finds the values that operators use as weights: initializers, and the results of moving the
/// elements of initializers. The constructor visits all nodes in rounds, until it finds nothing
/// new. A round takes time in proportion to the size of the graph. Only loops need more than two
/// rounds, because their steps read the results of earlier steps.
class weight_finder {
public:
  explicit weight_finder(const onnx::GraphProto& graph) {
    for (const auto& x : graph.initializer())
      initializers_.emplace(x.name(), &x);
    for (const auto& x : graph.input())
      if (!initializers_.contains(x.name()))
        of_data_.insert(x.name());
    until_nothing_changes(graph, &weight_finder::follow_data);
    until_nothing_changes(graph, &weight_finder::follow_products);
    for (int i = graph.node_size(); i-- > 0;)
      find_weights(graph.node(i));
  }

  name_set weights;

private:
  bool is_of_data(const std::string& value) const { return of_data_.contains(value); }

  bool reads_data(const onnx::NodeProto& node) const {
    return std::ranges::any_of(node.input(), [&](auto& x) { return !x.empty() && is_of_data(x); });
  }

  void until_nothing_changes(const onnx::GraphProto& graph,
                             void (weight_finder::*follow)(const onnx::NodeProto&)) {
    const auto found = [this] {
      return of_data_.size() + products_.size() + roots_.size() + normal_.size() + slopes_.size();
    };
    for (auto before = found() + 1; before != found();) {
      before = found();
      for (const auto& node : graph.node())
        (this->*follow)(node);
    }
  }

  bool makes_data(const onnx::NodeProto& node) const {
    return node.op_type() != "Shape" && node.op_type() != "Size" && reads_data(node);
  }

  void follow_data(const onnx::NodeProto& node) {
    if (makes_data(node))
      of_data_.insert(node.output().begin(), node.output().end());
  }

  void follow_products(const onnx::NodeProto& node) {
    if (!makes_data(node))
      return;
    const auto& op = node.op_type();
    follow_normalization(node);
    const bool weighted =
      std::ranges::any_of(node.input(), [&](auto& x) { return !x.empty() && !is_of_data(x); });
    const bool moves = (only_moves(op) || op == "Pad") && products_.contains(node.input(0));
    if (op == "Neg" && node.output_size() == 1)
      negatives_.insert(node.output(0));
    if (op == "Relu" && node.output_size() == 1 && negatives_.contains(node.input(0)))
      slopes_.insert(node.output(0));
    if ((is_product(op) && weighted) || moves)
      products_.insert(node.output().begin(), node.output().end());
  }

  /// Finds products with Reciprocal(Sqrt(variance)). tf2onnx writes the normalizations of Keras in
  /// this form.
  void follow_normalization(const onnx::NodeProto& node) {
    const auto& op = node.op_type();
    if (node.output_size() != 1)
      return;
    // PyTorch's older exporter writes group normalization as an instance normalization without
    // trained scale.
    if (op == "InstanceNormalization" && node.input_size() > 1
        && !initializers_.contains(node.input(1)))
      normal_.emplace(node.output(0), nullptr);
    else if (only_moves(op) && normal_.contains(node.input(0)))
      normal_.emplace(node.output(0), normal_.at(node.input(0)));
    else if (op == "Sqrt")
      roots_.insert(node.output(0));
    else if (op == "Reciprocal" && roots_.contains(node.input(0)))
      normal_.emplace(node.output(0), nullptr);
    else if (op == "Mul" && node.input_size() == 2)
      for (int i = 0; i < 2; ++i)
        if (const auto found = normal_.find(node.input(i)); found != normal_.end()) {
          const auto scale = initializers_.find(node.input(1 - i));
          const bool scales = scale != initializers_.end() && scale->second->dims_size() > 0;
          normal_.emplace(node.output(0), scales ? scale->second : found->second);
        }
  }

  bool is_of_normalization(const onnx::NodeProto& node, int input) const {
    const auto tensor = initializers_.find(node.input(input));
    const auto& op = node.op_type();
    if (tensor == initializers_.end() || (op != "Mul" && op != "Add") || node.input_size() != 2)
      return false;
    const auto normal = normal_.find(node.input(1 - input));
    if (normal == normal_.end())
      return false;
    const auto* scale = normal->second;
    return op == "Mul"   ? scale == nullptr
      : scale != nullptr ? std::ranges::equal(tensor->second->dims(), scale->dims())
                         : is_vector(*tensor->second);
  }

  void find_weights(const onnx::NodeProto& node) {
    const auto& op = node.op_type();
    for (int i = 0; i < node.input_size(); ++i) {
      const bool row_table =
        op == "Gather" && i == 0 && node.input_size() > 1 && is_of_data(node.input(1));
      if (takes_weights(op, i) || row_table || (op == "Add" && is_bias(node, i))
          || is_of_normalization(node, i) || is_slope(node, i))
        weights.insert(node.input(i));
    }
    // If the node also reads data, its result is data, not weights.
    const bool passes = only_moves(op) && !reads_data(node)
      && std::ranges::any_of(node.output(), [&](auto& x) { return weights.contains(x); });
    const int tensors = op == "Concat" ? node.input_size() : 1;
    for (int i = 0; i < std::min(tensors, node.input_size()) && passes; ++i)
      weights.insert(node.input(i));
  }

  /// True for a slope of Keras' PReLU, which tf2onnx writes as relu(x) + slope * relu(-x).
  bool is_slope(const onnx::NodeProto& node, int input) const {
    const auto& name = node.input(input);
    return node.op_type() == "Mul" && node.input_size() == 2 && name.ends_with(":0")
      && initializers_.contains(name) && slopes_.contains(node.input(1 - input));
  }

  bool is_bias(const onnx::NodeProto& node, int input) const {
    const auto found = initializers_.find(node.input(input));
    return found != initializers_.end() && is_vector(*found->second) && node.input_size() == 2
      && products_.contains(node.input(1 - input));
  }

  std::unordered_map<std::string_view, const onnx::TensorProto*> initializers_;
  /// Values that depend on the model's input.
  std::unordered_set<std::string> of_data_;
  /// Products of data with values that do not depend on data. Their elements may have been moved
  /// after the product.
  std::unordered_set<std::string> products_;
  /// Values -x and relu(-x), where x depends on the model's input.
  std::unordered_set<std::string> negatives_;
  std::unordered_set<std::string> slopes_;
  /// Square roots of values that depend on the model's input.
  std::unordered_set<std::string> roots_;
  /// Reciprocals of these roots, and the products that contain such a reciprocal. Each is mapped to
  /// the tensor by which it was multiplied (the scale of a normalization). Null if there is no such
  /// tensor yet.
  std::unordered_map<std::string, const onnx::TensorProto*> normal_;
};

} // namespace

onnx_roles::onnx_roles(const onnx::GraphProto& graph) {
  for (const auto& x : graph.value_info())
    if (auto kind = kind_in(x); !kind.empty())
      said_.emplace(x.name(), std::move(kind));
  weights_ = weight_finder{graph}.weights;
}

bool onnx_roles::trained_by_use(const std::string& name) const {
  return weights_.contains(name) || named_as_weight(name);
}

bool onnx_roles::decided_by_exporter(const std::string& name) const {
  const auto said = said_.find(name);
  return said != said_.end() && (said->second == "PARAMETER") != trained_by_use(name);
}

bool onnx_roles::is_stored_by_pytorch(const std::string& name) const {
  const auto said = said_.find(name);
  return said != said_.end() && (said->second == "PARAMETER" || said->second == "BUFFER");
}

std::string onnx_roles::why_it_stays(const std::string& name) const {
  if (const auto said = said_.find(name); said != said_.end())
    return said->second == "PARAMETER" ? "" : "a " + said->second + " in the ONNX file";
  return trained_by_use(name)
    ? ""
    : "in the ONNX file, neither used as a weight by an operator nor named like one";
}

} // namespace troupe
