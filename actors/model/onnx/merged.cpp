#include "actors/model/onnx/merged.hpp"

#include "actors/model/onnx/constant.hpp"
#include "actors/model/onnx/names.hpp"
#include "actors/model/onnx/outline.hpp"
#include "kernels/error.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
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
      parts_[x.name()] = {x.name()};
      sizes_[x.name()] =
        std::accumulate(x.dims().begin(), x.dims().end(), std::int64_t{1}, std::multiplies{});
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
  /// Tensors that stand for both biases of a recurrent operator.
  std::map<std::string, const onnx::NodeProto*> halves;

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
        join_parts(node, y);
        continue;
      }
      before_.emplace(y, weight.empty() ? before : weight);
      if (!weight.empty() || (only_moves(node.op_type()) && products_.contains(node.input(0))))
        products_.emplace(y, weight.empty() ? in(products_, node.input(0)) : weight);
    }
    if (!weight.empty() && reads_data(node))
      number_[weight] = ++products_so_far_;
  }

  /// Notes from which initializers an operator that only moves elements takes a value.
  void join_parts(const onnx::NodeProto& node, const std::string& value) {
    constexpr std::size_t most_parts = 64;
    const bool joins = node.op_type() == "Concat";
    if (!joins && !only_moves(node.op_type()))
      return;
    std::set<std::string> all;
    for (int i = 0; i < (joins ? node.input_size() : std::min(node.input_size(), 1)); ++i) {
      const auto from = parts_.find(node.input(i));
      if (from == parts_.end() || all.size() > most_parts)
        all.insert(unknown);
      else
        all.insert(from->second.begin(), from->second.end());
      if (node.op_type() == "Slice" || sliced_.contains(node.input(i)))
        sliced_.insert(value);
    }
    if (all.size() > most_parts)
      all = {unknown};
    parts_[value] = std::move(all);
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
      const auto how = role_of(node, i);
      const auto found = parts_.find(node.input(i));
      const bool recurrent = is_recurrent(node.op_type());
      // A model may itself use the slices of a tensor in different places.
      if (how == role::none || found == parts_.end()
          || (!recurrent && sliced_.contains(node.input(i))))
        continue;
      const bool binary = how == role::bias && node.op_type() == "Add";
      const tensor_use use{&node, how, binary ? in(products_, node.input(1 - i)) : weight_of(node),
                           in(before_, node.output(0)), in(after_, node.output(0))};
      for (const auto& name : found->second)
        if (trained_.contains(name))
          uses[name].push_back(use);
      if (recurrent)
        find_halves(node, found->second);
    }
  }

  /// A recurrent operator has two biases for each gate. PyTorch keeps them in two tensors. If the
  /// bias of the operator has more elements than its parts, one part stands for both.
  void find_halves(const onnx::NodeProto& node, const std::set<std::string>& parts) {
    std::int64_t units = 0;
    std::int64_t directions = 1;
    for (const auto& x : node.attribute()) {
      units = x.name() == "hidden_size" ? x.i() : units;
      directions = x.name() == "direction" && x.s() == "bidirectional" ? 2 : directions;
    }
    const std::int64_t gates = node.op_type() == "LSTM" ? 4 : node.op_type() == "GRU" ? 3 : 1;
    constexpr std::int64_t most_units = std::int64_t{1} << 24;
    const bool known =
      std::ranges::all_of(parts, [&](auto& name) { return trained_.contains(name); });
    if (parts.empty() || !known || units < 1 || units > most_units)
      return;
    std::int64_t elements = 0;
    for (const auto& name : parts)
      elements += sizes_.at(name);
    if (elements < 2 * directions * gates * units)
      halves.emplace(*parts.begin(), &node);
  }

  /// Stands in parts_ for elements of unknown origin.
  static constexpr auto unknown = "";

  const std::set<std::string, std::less<>>& trained_;
  /// For a value that does not depend on data: the first initializer from which it is computed.
  by_value roots_;
  /// For a value that only consists of elements of initializers: these initializers. PyTorch's
  /// older exporter writes an Identity for each merged parameter, and moves the elements of some.
  std::unordered_map<std::string, std::set<std::string>> parts_;
  /// Values whose elements may be only some of those of these initializers.
  std::unordered_set<std::string> sliced_;
  /// The number of elements of each initializer.
  std::unordered_map<std::string, std::int64_t> sizes_;
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
  const use_finder found{outline, trained};
  const auto refuse = [&](const std::string& name, const std::string& readers) {
    throw input_error(
      model + ": the exporter probably merged different parameters with equal values into the "
      + "tensor \"" + name + "\", which " + readers
      + ", so that they cannot be trained apart; set these parameters to random values before the "
        "export (Keras; also if the model uses one layer twice), or export in training mode "
        "(PyTorch)");
  };
  for (const auto& [name, node] : found.halves)
    refuse(name, onnx_node_text(*node) + " reads as both of its biases");
  for (const auto& [name, uses] : found.uses)
    for (const auto& use : uses)
      if (!may_be_shared(uses[0], use)
          && (is_recurrent(use.node->op_type()) || has_equal_elements(graph, name)))
        refuse(name, onnx_node_text(*uses[0].node) + " and " + onnx_node_text(*use.node) + " read");
}

namespace {

/// A number that does not depend on the order of the elements. 0 if the elements have fewer than
/// two different values other than 0: such matrices can be equal by coincidence.
std::uint64_t sum_of_bits(const std::vector<double>& values) {
  std::uint64_t result = 0;
  double first = 0;
  bool differ = false;
  for (const double x : values) {
    first = first == 0 ? x : first;
    differ = differ || (x != 0 && x != first);
    result += std::bit_cast<std::uint64_t>(x) * 0x9e3779b97f4a7c15U >> 7;
  }
  return differ ? result | 1 : 0;
}

/// True if b is the transpose of a, and is not equal to a.
bool is_transposed(const onnx::TensorProto& a, const onnx::TensorProto& b) {
  if (a.dims(0) != b.dims(1) || a.dims(1) != b.dims(0))
    return false;
  const auto x = read_onnx_tensor(a).values;
  const auto y = read_onnx_tensor(b).values;
  const auto rows = static_cast<std::size_t>(a.dims(0));
  const auto columns = static_cast<std::size_t>(a.dims(1));
  if (x == y || x.size() != y.size() || x.size() != rows * columns)
    return false;
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      if (x[i * columns + j] != y[j * rows + i])
        return false;
  return true;
}

/// True if PyTorch's exporters give such names to tensors that they compute.
bool is_computed(const std::string& name) {
  return name.starts_with("onnx::") || name.starts_with("val_");
}

} // namespace

void refuse_copied(const onnx::GraphProto& graph, const std::set<std::string, std::less<>>& trained,
                   const std::string& model) {
  using extents = std::pair<std::int64_t, std::int64_t>;
  std::map<extents, std::vector<const onnx::TensorProto*>> by_shape;
  for (const auto& x : graph.initializer())
    if (is_onnx_real(x.data_type()) && x.dims_size() == 2 && x.dims(0) > 1 && x.dims(1) > 1)
      by_shape[{x.dims(0), x.dims(1)}].push_back(&x);
  std::map<std::pair<extents, std::uint64_t>, std::vector<const onnx::TensorProto*>> alike;
  for (const auto& [shape, all] : by_shape)
    if (by_shape.contains({shape.second, shape.first}))
      for (const auto* x : all)
        if (const auto sum = sum_of_bits(read_onnx_tensor(*x).values); sum != 0)
          alike[{std::minmax(shape.first, shape.second), sum}].push_back(x);
  for (const auto& [key, all] : alike)
    for (std::size_t i = 1; i < all.size(); ++i) {
      const auto& a = all[0]->name();
      const auto& b = all[i]->name();
      if ((trained.contains(a) || trained.contains(b)) && is_computed(a) != is_computed(b)
          && is_transposed(*all[0], *all[i]))
        throw input_error(model + ": the tensors \"" + a + "\" and \"" + b
                          + "\" are probably one weight that the exporter has copied and "
                            "transposed, so that the copies would be trained apart; export with "
                            "optimize=False, or do_constant_folding=False (PyTorch)");
    }
}

} // namespace troupe
