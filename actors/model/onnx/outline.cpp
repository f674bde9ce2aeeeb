#include "actors/model/onnx/outline.hpp"

#include <algorithm>

namespace troupe {

namespace {

void add_initializers(const onnx::GraphProto& from, onnx::GraphProto& to) {
  for (const auto& x : from.initializer()) {
    auto& tensor = *to.add_initializer();
    tensor.set_name(x.name());
    *tensor.mutable_dims() = x.dims();
    tensor.set_data_type(x.data_type());
  }
}

void add_nodes(const onnx::GraphProto& from, onnx::GraphProto& to) {
  for (const auto& node : from.node()) {
    if (std::ranges::none_of(node.attribute(), [](const auto& x) { return x.has_g(); })) {
      *to.add_node() = node;
      continue;
    }
    onnx::NodeProto whole;
    whole.set_name(node.name());
    whole.set_op_type(node.op_type());
    *whole.mutable_output() = node.output();
    for (const auto& attribute : node.attribute()) {
      if (!attribute.has_g())
        continue;
      const auto& body = attribute.g();
      for (int i = 0; i < std::min(node.input_size(), body.input_size()); ++i) {
        auto& entry = *to.add_node();
        entry.set_op_type("Identity");
        entry.add_input(node.input(i));
        // From its second step on, the body of a loop gets its own results as inputs.
        if (node.op_type() == "Loop" && i >= 2 && i - 1 < body.output_size())
          entry.add_input(body.output(i - 1).name());
        entry.add_output(body.input(i).name());
      }
      add_initializers(body, to);
      add_nodes(body, to);
      for (const auto& output : body.output())
        whole.add_input(output.name());
    }
    *to.add_node() = whole;
  }
}

} // namespace

onnx::GraphProto outline_of(const onnx::GraphProto& graph) {
  onnx::GraphProto result;
  *result.mutable_input() = graph.input();
  *result.mutable_output() = graph.output();
  *result.mutable_value_info() = graph.value_info();
  add_initializers(graph, result);
  add_nodes(graph, result);
  return result;
}

} // namespace troupe
