#include "actors/model/onnx/model.hpp"

#include "actors/model/onnx/constant.hpp"
#include "actors/model/onnx/external_data.hpp"
#include "actors/model/onnx/merged.hpp"
#include "actors/model/onnx/names.hpp"
#include "actors/model/onnx/outline.hpp"
#include "actors/model/onnx/weights.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/file.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace troupe {

namespace {

constexpr std::int64_t oldest = 1;
constexpr std::size_t least_limit = 65'536;
/// The number of the field metadata_props in a NodeProto.
constexpr int node_metadata = 9;

/// True if an input of an operator gets no gradient, because it is only a setting, such as a shape.
bool only_says(const onnx::NodeProto& node, int input) {
  static const std::set<std::string, std::less<>> all{
    "Equal", "Less",  "LessOrEqual", "Greater", "GreaterOrEqual",  "And",  "Or",    "Xor",
    "Not",   "Shape", "Size",        "Range",   "ConstantOfShape", "Sign", "IsNaN", "Floor",
    "Ceil",  "Round"};
  static const std::set<std::string, std::less<>> all_but_the_first{
    "Reshape",      "Expand",
    "Slice",        "Split",
    "Squeeze",      "Unsqueeze",
    "Gather",       "Pad",
    "Clip",         "Pow",
    "Dropout",      "ReduceSum",
    "ReduceMean",   "ReduceMax",
    "ReduceMin",    "ReduceL1",
    "ReduceL2",     "ReduceSumSquare",
    "ReduceLogSum", "ReduceLogSumExp",
    "Tile",         "Trilu",
    "CastLike",     "CumSum",
    "Upsample",     "Resize",
    "SequenceAt",   "SplitToSequence"};
  const auto& op = node.op_type();
  if (all.contains(op))
    return true;
  if (all_but_the_first.contains(op))
    return input > 0;
  if (op == "Where")
    return input == 0;
  if (op == "BatchNormalization")
    return input > 2;
  return (op == "RNN" || op == "LSTM" || op == "GRU") && input > 3;
}

/// The share of the running statistics that a batch normalization keeps in an update.
double momentum_of(const onnx::NodeProto& node) {
  constexpr double usual = 0.9;
  for (const auto& x : node.attribute())
    if (x.name() == "momentum")
      return static_cast<double>(x.f());
  return usual;
}

/// The metadata that PyTorch's exporter writes for a node.
struct node_marks {
  std::string origin; ///< the operation in PyTorch
  std::string rules;  ///< the exporter's simplifications that made the node
};

/// The names of the parameters that an operation of PyTorch reads: "%p_head_weight".
/// @param origin the text of the operation (node_marks::origin)
std::set<std::string> parameters_in(const std::string& origin) {
  std::set<std::string> result;
  for (auto at = origin.find("%p_"); at != std::string::npos; at = origin.find("%p_", at + 1))
    result.insert(origin.substr(at, origin.find_first_of(",)] ", at) - at));
  return result;
}

/// True if the input of a node is the scale 1 or the shift 0 of an InstanceNormalization with which
/// PyTorch's exporter replaces a group normalization.
bool is_neutral(const onnx::NodeProto& node, int input, const std::string& origin) {
  return input > 0 && node.op_type() == "InstanceNormalization"
    && origin.find("aten.group_norm") != std::string::npos;
}

/// Refuses a tensor that stands for several parameters. PyTorch's exporter merges parameters with
/// equal values, such as the scales of two normalizations. Training the merged tensor would keep
/// these parameters equal.
class merged_parameters {
public:
  merged_parameters(const onnx::GraphProto& graph, const std::string& model) : model_(model) {
    const onnx_roles roles{graph};
    for (const auto& x : graph.initializer())
      if (is_onnx_real(x.data_type())
          && (x.dims_size() > 0 || roles.is_stored_by_pytorch(x.name())))
        uses_.emplace(x.name(), use{});
  }

  void add(const onnx::NodeProto& node, const std::string& origin) {
    const auto here = parameters_in(origin);
    if (here.empty())
      return;
    for (int i = 0; i < node.input_size(); ++i) {
      const auto& input = node.input(i);
      const auto found = uses_.find(input);
      if (found == uses_.end() || is_neutral(node, i, origin))
        continue;
      auto& [first, common] = found->second;
      if (first == nullptr) {
        common = here;
        first = &node;
        continue;
      }
      std::erase_if(common, [&](const auto& x) { return !here.contains(x); });
      if (common.empty())
        throw input_error(model_ + ": the exporter merged different parameters with equal values "
                          + "into the tensor \"" + input + "\", which " + onnx_node_text(*first)
                          + " and " + onnx_node_text(node)
                          + " read, so that they cannot be trained apart; export "
                          + "with optimize=False");
    }
  }

private:
  struct use {
    const onnx::NodeProto* first = nullptr;
    /// The parameters that are common to all nodes found so far that read the tensor.
    std::set<std::string> common = {};
  };

  std::string model_;
  std::unordered_map<std::string_view, use> uses_;
};

/// Marks the tensors that PyTorch's exporter computed but left without a mark (see onnx_roles):
/// - A tensor is marked as a constant if all parameters of the operations that read it are also in
///   the model as other tensors.
/// - For a group normalization, the exporter writes an InstanceNormalization with scale 1 and shift
///   0, then a product and a sum with the real scale and shift. Scale 1 and shift 0 are marked as
///   constants (is_neutral), the real scale and shift as parameters.
class computed_tensors {
public:
  explicit computed_tensors(const onnx::GraphProto& graph) {
    std::unordered_set<std::string_view> marked;
    for (const auto& x : graph.value_info())
      for (auto& [key, value] : onnx_metadata(x, value_metadata))
        if (key == "pkg.torch.onnx.original_node_name") {
          present_.insert("%" + value);
          marked.insert(x.name());
        }
    for (const auto& x : graph.initializer())
      if (is_onnx_real(x.data_type()) && x.dims_size() > 0 && !marked.contains(x.name()))
        marks_.emplace(x.name(), std::string{});
  }

  void add(const onnx::NodeProto& node, const std::string& origin) {
    const auto here = parameters_in(origin);
    const bool all = !here.empty() && std::ranges::includes(present_, here);
    const bool group = origin.find("aten.group_norm") != std::string::npos;
    const auto& op = node.op_type();
    for (int i = 0; i < node.input_size(); ++i) {
      const auto found = marks_.find(node.input(i));
      if (found == marks_.end())
        continue;
      if (all || is_neutral(node, i, origin))
        found->second = "CONSTANT_TENSOR";
      else if (group && (op == "Mul" || op == "Add"))
        found->second = "PARAMETER";
      else
        marks_.erase(found);
    }
  }

  void write(onnx::GraphProto& graph) const {
    for (const auto& [name, mark] : marks_)
      if (!mark.empty())
        mark_tensor(name, mark, *graph.add_value_info());
  }

private:
  /// The parameters that the model has under their own names.
  std::set<std::string> present_;
  /// The mark of each tensor; empty if no node has read the tensor yet.
  std::map<std::string, std::string, std::less<>> marks_;
};

/// Reads the metadata of a node. Older schemas of ONNX lack metadata_props, field 9 of NodeProto,
/// so it is read as an unknown field.
node_marks marks_of(const onnx::NodeProto& node) {
  node_marks result;
  for (const auto& [key, value] : onnx_metadata(node, node_metadata)) {
    if (key == "pkg.torch.onnx.fx_node")
      result.origin = value;
    else if (key == "pkg.onnxscript.rewriter.rule_name")
      result.rules = value;
  }
  return result;
}

/// The padding_idx of an embedding in PyTorch. Empty if there is none.
/// @param origin the text of the operation (node_marks::origin):
/// "...aten.embedding.default](args = (%p_table_weight, %x, 0), kwargs = {})"
std::optional<std::int64_t> padding_in(const std::string& origin) {
  constexpr std::string_view operation = "aten.embedding.default](args = (";
  auto at = origin.find(operation);
  for (int skipped = 0; skipped < 2 && at != std::string::npos; ++skipped)
    at = origin.find(", ", at + 1);
  std::int64_t row = -1;
  if (at == std::string::npos || at > origin.find(')'))
    return std::nullopt;
  const auto* text = origin.data() + at + 2;
  const auto [end, error] = std::from_chars(text, origin.data() + origin.size(), row);
  return error == std::errc{} && row >= 0 ? std::optional{row} : std::nullopt;
}

void add_attribute(onnx::NodeProto& node, std::string_view name, std::int64_t value) {
  auto& result = *node.add_attribute();
  result.set_name(std::string{name});
  result.set_type(onnx::AttributeProto::INT);
  result.set_i(value);
}

bool has_values(const onnx::TensorProto& x) {
  return x.has_raw_data() || x.float_data_size() > 0 || x.double_data_size() > 0
    || x.int32_data_size() > 0;
}

/// The values of a graph that the gradients of its outputs reach.
/// @param stops true if marks of x.detach() stop gradients
std::unordered_set<std::string_view> learnt_in(const onnx::GraphProto& graph, bool stops) {
  std::unordered_set<std::string_view> result;
  for (const auto& output : graph.output())
    result.insert(output.name());
  for (int i = graph.node_size(); i-- > 0;) {
    const auto& node = graph.node(i);
    const bool ends = stops && std::ranges::any_of(node.attribute(), [](const auto& x) {
                        return x.name() == onnx_model::stops_gradient;
                      });
    if (ends || std::ranges::none_of(node.output(), [&](auto& x) { return result.contains(x); }))
      continue;
    for (int input = 0; input < node.input_size(); ++input)
      if (!only_says(node, input))
        result.insert(node.input(input));
  }
  return result;
}

/// True if the second half of each row (directions, 2 n) is 0.
bool has_zero_second_halves(const onnx::TensorProto& x) {
  if (!is_onnx_real(x.data_type()) || x.dims_size() != 2 || x.dims(1) % 2 != 0)
    return false;
  const auto values = read_onnx_tensor(x).values;
  const auto n = static_cast<std::size_t>(x.dims(1));
  for (std::size_t i = 0; i < values.size(); ++i)
    if (i % n >= n / 2 && values[i] != 0)
      return false;
  return true;
}

/// Calls f with each node, after the nodes in the bodies of this node.
void visit(onnx::GraphProto& graph, const std::function<void(onnx::NodeProto&)>& f) {
  for (auto& node : *graph.mutable_node()) {
    for (auto& attribute : *node.mutable_attribute())
      if (attribute.has_g())
        visit(*attribute.mutable_g(), f);
    f(node);
  }
}

/// Marks recurrent operators whose second bias must not be trained. ONNX's operators add two
/// biases. Keras has one bias, so tf2onnx writes zeros as the second bias. If both biases were
/// trained, each step would change their sum twice. Other exporters may write a second bias that is
/// trained and only begins with 0, so their models are not marked.
void mark_single_biases(onnx::ModelProto& model) {
  if (model.producer_name() != "tf2onnx")
    return;
  std::unordered_map<std::string_view, const onnx::TensorProto*> tensors;
  for (const auto& x : model.graph().initializer())
    tensors.emplace(x.name(), &x);
  visit(*model.mutable_graph(), [&](onnx::NodeProto& node) {
    const bool sums_both = node.op_type() == "LSTM" || node.op_type() == "RNN"
      || (node.op_type() == "GRU" && std::ranges::none_of(node.attribute(), [](const auto& x) {
                             return x.name() == "linear_before_reset" && x.i() != 0;
                           }));
    if (!sums_both || node.input_size() < 4)
      return;
    const auto bias = tensors.find(node.input(3));
    if (bias == tensors.end() || !has_zero_second_halves(*bias->second))
      return;
    add_attribute(node, onnx_model::single_bias, 1);
  });
}

} // namespace

onnx_model onnx_model::parse(std::span<const std::byte> bytes, std::string name) {
  return parse(bytes, std::move(name), false);
}

onnx_model onnx_model::parse_structure(std::span<const std::byte> bytes, std::string name) {
  return parse(bytes, std::move(name), true);
}

onnx_model onnx_model::read(const std::filesystem::path& path) {
  const auto folder = path.parent_path();
  return parse(read_file(path), path.string(), false, &folder);
}

onnx_model onnx_model::parse(std::span<const std::byte> bytes, std::string name,
                             bool without_values, const std::filesystem::path* folder) {
  onnx_model result;
  result.name_ = std::move(name);
  result.proto_ = std::make_shared<onnx::ModelProto>();
  result.constant_limit_ = std::max(least_limit, bytes.size());
  if (bytes.size() > std::numeric_limits<int>::max())
    throw input_error(result.name_ + ": longer than 2 GiB, which ONNX does not allow");
  if (!result.proto_->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))
      || !result.proto_->has_graph())
    throw input_error(result.name_ + ": not an ONNX model, or cut off");
  if (folder != nullptr)
    load_external_data(*result.proto_, result.name_, *folder);
  result.check_operator_sets();
  result.read_marks();
  result.find_weights(without_values);
  result.check_tensors(result.proto_->graph(), without_values);
  result.check_names();
  if (!without_values) {
    mark_single_biases(*result.proto_);
    result.refuse_merged_tensors();
  }
  return result;
}

// read_marks() already checked merged parameters in models of PyTorch's exporter. A model from
// troupe has the parameters of the model that was trained.
void onnx_model::refuse_merged_tensors() const {
  if (proto_->producer_name() == "troupe")
    return;
  std::set<std::string, std::less<>> trained;
  for (const auto& x : weights_)
    if (x.stays.empty() && !x.decay)
      trained.insert(x.name);
  refuse_copied(proto_->graph(), trained, name_);
  if (!onnx_roles{proto_->graph()}.has_marks())
    refuse_merged(proto_->graph(), trained, name_);
}

void onnx_model::check_operator_sets() {
  for (const auto& x : proto_->opset_import())
    if (x.domain().empty() || x.domain() == "ai.onnx")
      version_ = x.version();
  if (version_ < oldest || version_ > newest_onnx_operators)
    throw input_error(name_ + ": uses version " + std::to_string(version_)
                      + " of ONNX's operators; export it with one from " + std::to_string(oldest)
                      + " to " + std::to_string(newest_onnx_operators) + " (opset_version)");
  if (proto_->functions_size() > 0)
    throw input_error(name_ + ": contains model-local functions; export it without functions");
  if (proto_->graph().sparse_initializer_size() > 0)
    throw input_error(name_ + ": holds sparse tensors; save them as dense ones");
}

/// Restores what PyTorch's exporter changes in models for training. The exporter writes batch
/// normalization in inference mode, or merges it into a convolution. The metadata of the nodes show
/// what the original model does. So this function sets the training mode again, refuses merged
/// nodes, and marks nodes that stop gradients.
void onnx_model::read_marks() {
  merged_parameters merged{proto_->graph(), name_};
  computed_tensors computed{proto_->graph()};
  visit(*proto_->mutable_graph(), [&](onnx::NodeProto& node) {
    const auto marks = marks_of(node);
    merged.add(node, marks.origin);
    computed.add(node, marks.origin);
    const bool trains =
      marks.origin.find("native_batch_norm_legit_functional") != std::string::npos;
    if (marks.rules.find("FuseBatchNorm") != std::string::npos && trains)
      throw input_error(name_ + ": " + onnx_node_text(node)
                        + ": the exporter folded batch normalization into this node, so that it "
                          "cannot be trained; export with optimize=False");
    if (node.op_type() == "BatchNormalization" && trains && !measures_batch(node, version_))
      add_attribute(node, "training_mode", 1);
    if (node.op_type() == "Identity" && marks.origin.find("aten.detach.") != std::string::npos)
      add_attribute(node, stops_gradient, 1);
    if (const auto row = padding_in(marks.origin); node.op_type() == "Gather" && row)
      add_attribute(node, padding_row, *row);
    node.DiscardUnknownFields();
  });
  computed.write(*proto_->mutable_graph());
}

namespace {

bool has_infinity(const onnx::TensorProto& x, const std::string& model) {
  check_onnx_tensor(x, model, false);
  const auto values = read_onnx_tensor(x).values;
  return std::ranges::any_of(values, [](double y) { return std::isinf(y); });
}

} // namespace

void onnx_model::find_weights(bool without_values) {
  const auto graph = outline_of(proto_->graph());
  std::unordered_map<std::string_view, const onnx::TensorProto*> outside;
  for (const auto& x : proto_->graph().initializer())
    outside.emplace(x.name(), &x);
  const auto learnt = learnt_in(graph, false);
  const auto reached = learnt_in(graph, true);
  std::unordered_map<std::string_view, double> state;
  for (const auto& node : graph.node())
    if (measures_batch(node, version_))
      for (int input = 3; input < std::min(node.input_size(), 5); ++input)
        state.emplace(node.input(input), 1 - momentum_of(node));
  const onnx_roles roles{graph};
  const auto& from = proto_->producer_name();
  const bool names_parameters = from == "troupe" || (from == "pytorch" && !roles.has_marks());
  const auto is_constant = [&](const onnx::TensorProto& x) {
    if (!outside.contains(x.name()))
      return x.dims_size() == 0;
    const auto& tensor = *outside.at(x.name());
    if (without_values) // then exactly the weights have no values
      return has_values(tensor);
    // For example a mask that is added to the scores of attention.
    if (!state.contains(x.name()) && !roles.why_it_stays(x.name()).empty()
        && has_infinity(tensor, name_))
      return true;
    return x.dims_size() == 0 && !roles.is_stored_by_pytorch(x.name())
      && (!names_parameters || x.name().starts_with("onnx::"));
  };
  for (const auto& x : graph.initializer()) {
    const auto running = state.find(x.name());
    const bool is_state = running != state.end();
    if (!is_onnx_real(x.data_type()) || is_constant(x) || !(is_state || learnt.contains(x.name())))
      continue;
    if (!outside.contains(x.name())) {
      if (roles.why_it_stays(x.name()).empty())
        throw input_error(name_ + ": the weight \"" + x.name()
                          + "\" is inside the body of a loop or branch, where it cannot be "
                            "trained; export the model with its weights outside");
      continue;
    }
    // The tensor has not been checked yet. If its shape is impossible, this check throws an error
    // that names the tensor.
    check_onnx_tensor(x, name_, true);
    weight found{x.name(), shape{std::vector<std::int64_t>(x.dims().begin(), x.dims().end())}};
    if (is_state)
      found.decay = running->second;
    else
      found.stays = roles.why_it_stays(x.name());
    if (found.stays.empty() && !is_state && !reached.contains(x.name()))
      found.stays = "x.detach() in the PyTorch model stops its gradient";
    weights_.push_back(std::move(found));
    weight_names_.insert(x.name());
  }
}

void onnx_model::check_tensors(const onnx::GraphProto& graph, bool without_values) const {
  for (const auto& x : graph.initializer())
    check_onnx_tensor(x, name_, without_values && is_weight(x.name()));
  for (const auto& node : graph.node())
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_t())
        check_onnx_tensor(attribute.t(), name_ + ": " + onnx_node_text(node), false);
      if (attribute.has_g())
        check_tensors(attribute.g(), false);
    }
}

void onnx_model::check_names() const {
  check_onnx_names(proto_->graph(), name_);
}

std::string onnx_model::structure() const {
  onnx::ModelProto copy;
  // The model is copied field by field, so that the weights are never copied.
  copy.set_ir_version(proto_->ir_version());
  *copy.mutable_opset_import() = proto_->opset_import();
  const auto& from = proto_->graph();
  auto& to = *copy.mutable_graph();
  to.set_name(from.name());
  *to.mutable_node() = from.node();
  for (auto& node : *to.mutable_node())
    node.clear_doc_string();
  *to.mutable_input() = from.input();
  *to.mutable_output() = from.output();
  for (const auto& x : from.initializer()) {
    auto& tensor = *to.add_initializer();
    if (!is_weight(x.name())) {
      tensor = x;
      continue;
    }
    tensor.set_name(x.name());
    *tensor.mutable_dims() = x.dims();
    tensor.set_data_type(x.data_type());
  }
  // Keeps the exporter's mark on a tensor only if the mark decides whether the tensor is trained.
  const onnx_roles roles{outline_of(from)};
  for (const auto& x : from.value_info())
    if (is_weight(x.name()) && roles.decided_by_exporter(x.name()))
      *to.add_value_info() = x;
  return copy.SerializeAsString();
}

std::vector<float> onnx_model::values(const layout& parameters) const {
  std::vector<float> result(parameters.size());
  for (const auto& x : proto_->graph().initializer()) {
    const auto* entry = parameters.find(x.name());
    if (entry == nullptr)
      continue;
    const auto tensor = read_onnx_tensor(x);
    std::ranges::transform(tensor.values,
                           result.begin() + static_cast<std::ptrdiff_t>(entry->offset),
                           [](double value) { return static_cast<float>(value); });
  }
  return result;
}

void onnx_model::require_finite() const {
  for (const auto& x : proto_->graph().initializer()) {
    if (!is_weight(x.name()))
      continue;
    const auto values = read_onnx_tensor(x).values;
    const auto bad = std::ranges::find_if_not(values, [](double v) { return std::isfinite(v); });
    if (bad != values.end())
      throw input_error(name_ + ": tensor \"" + x.name() + "\" has "
                        + (std::isnan(*bad) ? "NaN" : "infinity") + " at element "
                        + std::to_string(bad - values.begin()) + "; expected finite weights");
  }
}

// Before version 14, the statistics of the batch are additional outputs, so a node that computes
// them has several outputs.
bool measures_batch(const onnx::NodeProto& node, std::int64_t version) {
  constexpr std::int64_t with_attribute = 14;
  if (node.op_type() != "BatchNormalization")
    return false;
  if (version < with_attribute)
    return version >= 7 && node.output_size() > 1;
  for (const auto& x : node.attribute())
    if (x.name() == "training_mode")
      return x.i() != 0;
  return false;
}

} // namespace troupe
