#include "actors/model/onnx/merged.hpp"

#include "actors/model/onnx/constant.hpp"
#include "actors/model/onnx/names.hpp"
#include "actors/model/onnx/outline.hpp"
#include "kernels/error.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace troupe {

namespace {

using op_names = std::unordered_set<std::string_view>;

bool is_recurrent(const std::string& op) {
  return op == "RNN" || op == "LSTM" || op == "GRU";
}

bool is_product(const std::string& op) {
  static const op_names all{"Gemm", "MatMul", "Einsum", "Conv", "ConvTranspose"};
  return all.contains(op) || is_recurrent(op);
}

bool is_normalization(const std::string& op) {
  static const op_names all{"BatchNormalization", "LayerNormalization", "InstanceNormalization",
                            "GroupNormalization", "RMSNormalization"};
  return all.contains(op);
}

bool only_moves(const std::string& op) {
  static const op_names all{"Identity",  "Transpose", "Reshape", "Squeeze",
                            "Unsqueeze", "Flatten",   "Cast",    "Slice"};
  return all.contains(op);
}

/// How a node uses a trained tensor.
enum class role : std::uint8_t { none, bias, scale, shift, statistic };

/// A use of a tensor.
struct tensor_use {
  const onnx::NodeProto* node = nullptr;
  troupe::role role = role::none;
  /// For a bias: the weight of the product.
  std::string weight = {};
  /// The weights of the previous and of the next product.
  std::string before = {};
  std::string after = {};
};

bool may_be_shared(const tensor_use& a, const tensor_use& b) {
  if (a.role != b.role)
    return false;
  return a.role == role::bias ? a.weight == b.weight : a.before == b.before || a.after == b.after;
}

/// Finds the uses of trained tensors, in one pass over the nodes in each direction.
class use_finder {
public:
  use_finder(const onnx::GraphProto& graph, const std::set<std::string, std::less<>>& trained)
    : trained_(trained) {
    for (const auto& x : graph.initializer()) {
      roots_.emplace(x.name(), x.name());
      copies_.emplace(x.name(), x.name());
    }
    for (const auto& x : graph.input())
      if (!roots_.contains(x.name()))
        before_.emplace(x.name(), std::string{});
    for (int i = 0; i < graph.node_size(); ++i)
      follow(graph.node(i));
    for (int i = graph.node_size(); i-- > 0;)
      follow_back(graph.node(i));
    for (const auto& node : graph.node())
      if (reads_data(node) && node.output_size() > 0)
        add_uses(node);
  }

  std::map<std::string, std::vector<tensor_use>> uses;

private:
  using by_value = std::unordered_map<std::string, std::string>;

  static std::string in(const by_value& all, const std::string& value) {
    const auto found = all.find(value);
    return found == all.end() ? std::string{} : found->second;
  }

  bool reads_data(const onnx::NodeProto& node) const {
    return node.op_type() != "Shape" && node.op_type() != "Size"
      && std::ranges::any_of(node.input(), [&](auto& x) { return before_.contains(x); });
  }

  /// The weight of a product with data. Empty if the node is no such product.
  std::string weight_of(const onnx::NodeProto& node) const {
    for (int i = 0; i < std::min(node.input_size(), 2) && is_product(node.op_type()); ++i)
      if (auto root = in(roots_, node.input(i)); !root.empty())
        return root;
    return {};
  }

  void follow(const onnx::NodeProto& node) {
    std::string root;
    std::string before;
    std::size_t latest = 0;
    for (const auto& x : node.input()) {
      root = root.empty() ? in(roots_, x) : root;
      const auto weight = in(before_, x);
      if (const auto found = number_.find(weight);
          found != number_.end() && found->second > latest) {
        latest = found->second;
        before = weight;
      }
    }
    const auto weight = weight_of(node);
    for (const auto& y : node.output()) {
      if (!reads_data(node)) {
        roots_.emplace(y, root);
        if (node.op_type() == "Identity" && node.input_size() == 1)
          copies_.emplace(y, in(copies_, node.input(0)));
        continue;
      }
      before_.emplace(y, weight.empty() ? before : weight);
      if (!weight.empty() || (only_moves(node.op_type()) && products_.contains(node.input(0))))
        products_.emplace(y, weight.empty() ? in(products_, node.input(0)) : weight);
    }
    if (!weight.empty() && reads_data(node))
      number_[weight] = ++products_so_far_;
  }

  void follow_back(const onnx::NodeProto& node) {
    if (!reads_data(node))
      return;
    auto after = weight_of(node);
    for (int i = 0; i < node.output_size() && after.empty(); ++i)
      after = in(after_, node.output(i));
    for (const auto& x : node.input())
      if (before_.contains(x) && !after.empty())
        after_[x] = after;
  }

  role role_of(const onnx::NodeProto& node, int input) const {
    const auto& op = node.op_type();
    if (is_recurrent(op))
      return input == 3 ? role::bias : role::none;
    if (is_product(op))
      return input == 2 && op != "Einsum" ? role::bias : role::none;
    if (is_normalization(op))
      return input == 1 ? role::scale : input == 2 ? role::shift : role::statistic;
    if (op == "PRelu" || op == "Mul")
      return role::scale;
    if ((op != "Add" && op != "Sub") || node.input_size() != 2)
      return role::none;
    return op == "Add" && products_.contains(node.input(1 - input)) ? role::bias : role::shift;
  }

  void add_uses(const onnx::NodeProto& node) {
    for (int i = 0; i < node.input_size(); ++i) {
      const auto name = in(copies_, node.input(i));
      const auto how = trained_.contains(name) ? role_of(node, i) : role::none;
      if (how == role::none)
        continue;
      const bool binary = how == role::bias && node.op_type() == "Add";
      uses[name].push_back({&node, how, binary ? in(products_, node.input(1 - i)) : weight_of(node),
                            in(before_, node.output(0)), in(after_, node.output(0))});
    }
  }

  const std::set<std::string, std::less<>>& trained_;
  /// For a value that does not depend on data: the first initializer from which it is computed.
  by_value roots_;
  /// For an initializer and its copies: the initializer. PyTorch's older exporter writes an
  /// Identity for each merged parameter.
  by_value copies_;
  /// For a value that depends on data: the weight of the previous product.
  by_value before_;
  /// The weight of the next product.
  by_value after_;
  /// For products, and products whose elements were moved: the weight.
  by_value products_;
  /// The number of the last product with a weight.
  std::unordered_map<std::string, std::size_t> number_;
  std::size_t products_so_far_ = 0;
};

bool has_equal_elements(const onnx::GraphProto& graph, const std::string& name) {
  for (const auto& x : graph.initializer())
    if (x.name() == name) {
      const auto values = read_onnx_tensor(x).values;
      return std::ranges::adjacent_find(values, std::ranges::not_equal_to{}) == values.end();
    }
  return false;
}

} // namespace

void refuse_merged(const onnx::GraphProto& graph, const std::set<std::string, std::less<>>& trained,
                   const std::string& model) {
  const auto outline = outline_of(graph);
  for (const auto& [name, uses] : use_finder{outline, trained}.uses)
    for (const auto& use : uses) {
      if (may_be_shared(uses[0], use)
          || (!is_recurrent(use.node->op_type()) && !has_equal_elements(graph, name)))
        continue;
      throw input_error(
        model + ": the exporter probably merged different parameters with equal values into the "
        + "tensor \"" + name + "\", which " + onnx_node_text(*uses[0].node) + " and "
        + onnx_node_text(*use.node)
        + " read, so that they cannot be trained apart; set these parameters to random values "
          "before the export (Keras), or export in training mode (PyTorch)");
    }
}

} // namespace troupe
