#include "actors/model/onnx/importer.hpp"

#include "actors/model/onnx/node.hpp"
#include "actors/model/onnx/outline.hpp"
#include "kernels/error.hpp"
#include "kernels/graph/sequence_operations.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

namespace troupe {

namespace {

struct kind_of_operators {
  std::string_view name;
  void (*add)(onnx_operators&);
};

constexpr std::array kinds{
  kind_of_operators{"element by element", add_elementwise_operators},
  kind_of_operators{"matrix products", add_linear_operators},
  kind_of_operators{"attention", add_attention_operators},
  kind_of_operators{"images", add_image_operators},
  kind_of_operators{"reductions and normalization", add_reduction_operators},
  kind_of_operators{"sequences", add_sequence_operators},
  kind_of_operators{"shapes", add_shape_operators},
  kind_of_operators{"parts", add_part_operators},
  kind_of_operators{"constants and types", add_constant_operators},
  kind_of_operators{"positions, masks and numbers", add_number_operators},
  kind_of_operators{"loops and branches", add_loop_operators}};

const onnx_operators& operators() {
  static const onnx_operators all = [] {
    onnx_operators result;
    for (const auto& kind : kinds)
      kind.add(result);
    return result;
  }();
  return all;
}

bool is_initializer(const onnx::GraphProto& graph, const std::string& name) {
  return std::ranges::any_of(graph.initializer(),
                             [&](const onnx::TensorProto& x) { return x.name() == name; });
}

onnx_port port_of(const onnx_model& model, const onnx::ValueInfoProto& x) {
  const auto refuse = [&](const std::string& what) {
    throw input_error(model.name() + ": input \"" + x.name() + "\" " + what);
  };
  if (!x.type().has_tensor_type() || !x.type().tensor_type().has_shape())
    refuse("is not a tensor of a known rank");
  const auto& type = x.type().tensor_type();
  onnx_port result;
  result.name = x.name();
  result.is_int64 = type.elem_type() == onnx::TensorProto::INT64;
  if (type.elem_type() == onnx::TensorProto::INT64 || type.elem_type() == onnx::TensorProto::INT32)
    result.type = dtype::int32;
  else if (!is_onnx_real(type.elem_type()))
    refuse("has elements of a type that is not supported; expected FLOAT, FLOAT16, BFLOAT16, "
           "DOUBLE, INT32 or INT64");
  for (const auto& d : type.shape().dim()) {
    if (d.has_dim_value() && d.dim_value() < 0)
      refuse("has a negative extent");
    result.dims.push_back(d.has_dim_value() ? d.dim_value() : onnx_constant::batch);
  }
  return result;
}

/// Largest number of elements of all computed constants together (512 MiB). For a model of more
/// bytes than this number, the limit is the number of its bytes.
constexpr std::size_t most_computed = std::size_t{1} << 26;

/// The variable with the name of the weight. Creates it if the graph does not have it.
/// initial_weights() sets its initial values.
expression variable_of(const onnx_model::weight& x, graph& target, const onnx_kinds& kind_of) {
  for (std::uint32_t id = 0; id < target.nodes().size(); ++id)
    if (target.at(id).op == operation::variable && target.at(id).name == x.name)
      return {target, id};
  const auto usual = x.decay ? parameter_kind::state
    : x.stays.empty()        ? parameter_kind::trainable
                             : parameter_kind::frozen;
  const auto kind = kind_of ? kind_of(x) : usual;
  if (x.decay)
    return target.variable(x.name, x.shape, initializer::zeros(), kind, *x.decay);
  return target.variable(x.name, x.shape,
                         x.shape.rank() >= 2 ? initializer::glorot_uniform() : initializer::zeros(),
                         kind);
}

bool casts_to_real(const onnx::NodeProto& node) {
  return std::ranges::any_of(node.attribute(), [](const auto& x) {
    return x.name() == "to" && is_onnx_real(static_cast<int>(x.i()));
  });
}

/// Adds the names that the nodes of a graph read, including nodes in the bodies of loops and
/// branches.
void add_inputs(const onnx::GraphProto& graph, onnx_node::names& to) {
  for (const auto& output : graph.output())
    to.insert(output.name());
  for (const auto& node : graph.node()) {
    to.insert(node.input().begin(), node.input().end());
    for (const auto& attribute : node.attribute())
      if (attribute.has_g())
        add_inputs(attribute.g(), to);
  }
}

} // namespace

void convert(onnx_node& node) {
  const auto& proto = node.proto();
  const bool own = !proto.domain().empty() && proto.domain() != "ai.onnx";
  const auto found = own ? operators().end() : operators().find(proto.op_type());
  if (found == operators().end())
    node.refuse("troupe does not have this operator"
                + (own ? " of the domain \"" + proto.domain() + "\"" : std::string{})
                + "; `troupe operators` lists the supported ones");
  try {
    node.take_apart();
    if (!compute_of_tokens(node, found->second.convert))
      found->second.convert(node);
  } catch (const onnx_node_error&) {
    throw;
  } catch (const input_error& error) {
    // The graph's own errors do not name the node, so refuse() adds it.
    node.refuse(error.what()
                + (node.example() > 0
                     ? "; the model was exported with a batch of " + std::to_string(node.example())
                       + ": export it with an open batch (dynamic_shapes, or dynamic_axes if "
                         "dynamo=False)"
                     : std::string{}));
  }
  node.finish();
}

std::vector<onnx_port> onnx_inputs(const onnx_model& model) {
  const auto& graph = model.proto().graph();
  std::vector<onnx_port> result;
  for (const auto& x : graph.input())
    if (!is_initializer(graph, x.name()))
      result.push_back(port_of(model, x));
  return result;
}

std::vector<std::string> onnx_outputs(const onnx_model& model) {
  std::vector<std::string> result;
  for (const auto& x : model.proto().graph().output())
    result.push_back(x.name());
  return result;
}

std::size_t onnx_table_rows(const onnx_model& model, const std::string& input) {
  static const std::set<std::string_view> moves{
    "Add", "Cast", "Expand",  "Flatten", "Greater", "GreaterOrEqual", "Identity",  "Less",
    "Mul", "Not",  "Reshape", "Squeeze", "Sub",     "Transpose",      "Unsqueeze", "Where"};
  static const std::set<std::string_view> parts{"Slice", "Split"};
  const auto& graph = model.proto().graph();
  std::map<std::string_view, std::int64_t> tables;
  for (const auto& x : graph.initializer())
    if (x.dims_size() == 2)
      tables.emplace(x.name(), x.dims(0));
  std::set<std::string_view> tokens{input};
  std::set<std::string_view> some; // values that hold only a part of the tokens
  const auto holds = [](const auto& names, const std::set<std::string_view>& wanted) {
    return std::ranges::any_of(names, [&](const auto& x) { return wanted.contains(x); });
  };
  std::int64_t all_rows = 0;
  std::int64_t some_rows = 0;
  bool numbers = false;
  for (const auto& node : graph.node()) {
    const bool picks = node.op_type() == "Gather" && node.input_size() == 2
      && (tokens.contains(node.input(0)) || some.contains(node.input(0)));
    const bool cuts = picks || parts.contains(node.op_type());
    numbers = numbers
      || (node.op_type() == "Cast" && casts_to_real(node)
          && (holds(node.input(), some) || holds(node.input(), tokens)));
    if ((cuts || moves.contains(node.op_type())) && holds(node.input(), some))
      some.insert(node.output().begin(), node.output().end());
    else if ((cuts || moves.contains(node.op_type())) && holds(node.input(), tokens))
      (cuts ? some : tokens).insert(node.output().begin(), node.output().end());
    if (node.op_type() != "Gather" || node.input_size() != 2)
      continue;
    const bool of_all = tokens.contains(node.input(1));
    if (!of_all && !some.contains(node.input(1)))
      continue;
    const bool columns = std::ranges::any_of(node.attribute(), [](const auto& x) {
      return x.name() == "axis" && x.i() != 0 && x.i() != -2;
    });
    const auto found = tables.find(node.input(0));
    if (columns || found == tables.end())
      continue;
    if (of_all)
      all_rows = all_rows == 0 ? found->second : std::min(all_rows, found->second);
    else
      some_rows = std::max(some_rows, found->second);
  }
  return static_cast<std::size_t>(all_rows > 0 ? all_rows : numbers ? 0 : some_rows);
}

std::vector<onnx_operator_text> onnx_operator_table() {
  std::vector<onnx_operator_text> result;
  for (const auto& kind : kinds) {
    onnx_operators rows;
    kind.add(rows);
    for (const auto& [name, row] : rows)
      result.push_back({name, kind.name, row.since, row.limits});
  }
  return result;
}

std::vector<onnx_output> import_onnx(const onnx_model& model, graph& target,
                                     const std::vector<expression>& inputs, bool training,
                                     const onnx_kinds& kind_of) {
  const auto& from = model.proto().graph();
  const auto ports = onnx_inputs(model);
  if (ports.size() != inputs.size())
    throw input_error(model.name() + ": has " + std::to_string(ports.size()) + " inputs, and "
                      + std::to_string(inputs.size()) + " were given");
  onnx_node::surroundings all{.model = model.name(),
                              .version = model.version(),
                              .limit = model.constant_limit(),
                              .target = target,
                              .most_computed = std::max(most_computed, model.constant_limit())};
  auto& values = all.all;
  for (std::size_t i = 0; i < ports.size(); ++i)
    values.emplace(ports[i].name, onnx_value{inputs[i]});
  for (const auto& x : model.weights())
    values.emplace(x.name, onnx_value{variable_of(x, target, kind_of)});
  for (const auto& x : from.initializer())
    if (!model.is_weight(x.name()))
      values.emplace(x.name(), onnx_value{read_onnx_tensor(x)});
  if (training)
    all.why = onnx_node::purpose::training;
  if (!ports.empty() && !ports[0].dims.empty())
    all.example = std::max<std::int64_t>(ports[0].dims[0], 0);
  add_inputs(from, all.used);
  for (const auto& proto : from.node()) {
    onnx_node node{proto, all};
    convert(node);
  }
  std::vector<onnx_output> result;
  for (const auto& output : from.output()) {
    const auto found = values.find(output.name());
    if (found == values.end())
      throw input_error(model.name() + ": output \"" + output.name()
                        + "\" is an optional output of its operator, which is not supported");
    auto v = found->second;
    if (v.items)
      throw input_error(model.name() + ": output \"" + output.name()
                        + "\" is a sequence of tensors");
    if (is_only_of_tokens(v))
      throw input_error(
        model.name() + ": output \"" + output.name()
        + "\" is computed only from the whole numbers of the input, which troupe does not support");
    if (!v.merged.empty())
      throw input_error(model.name() + ": output \"" + output.name()
                        + "\" merges the batch with another dimension");
    if (v.known && v.known->type != onnx_constant::kind::real) {
      auto numbers = *v.known;
      numbers.type = onnx_constant::kind::real;
      for (const auto x : numbers.values)
        if (!onnx_constant::is_number(x))
          throw input_error(model.name() + ": output \"" + output.name()
                            + "\" depends on the size of the batch");
      v = numbers;
    }
    result.push_back({to_tensor(v, target), v.has_batch() ? v.batch_at : 0});
  }
  return result;
}

bool differs_in_training(const onnx_model& model) {
  const auto all = outline_of(model.proto().graph());
  return std::ranges::any_of(all.node(), [&](const onnx::NodeProto& node) {
    return measures_batch(node, model.version())
      || (node.op_type() == "Dropout" && node.input_size() > 2)
      || std::ranges::any_of(node.attribute(),
                             [](const auto& x) { return x.name() == onnx_model::padding_row; });
  });
}

} // namespace troupe
