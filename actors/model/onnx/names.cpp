#include "actors/model/onnx/names.hpp"

#include "kernels/error.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace troupe {

std::string onnx_node_text(const onnx::NodeProto& node) {
  std::string result = "node";
  if (!node.name().empty())
    result += " \"" + node.name() + "\"";
  return result + " (" + node.op_type() + ")";
}

namespace {

/// Refuses names that are missing, defined twice or used before their definition.
class name_checker {
public:
  explicit name_checker(const std::string& model) : model_(model) {}

  void check(const onnx::GraphProto& graph, bool is_body = false) {
    std::vector<std::string_view> own;
    const auto define = [&](const std::string& x, const std::string& what) {
      if (!defined_.insert(x).second)
        refuse("two tensors are called \"" + x + "\", one of them " + what);
      own.push_back(x);
    };
    for (const auto& x : graph.initializer())
      define(x.name(), "an initializer");
    for (const auto& x : graph.input()) {
      if (is_body)
        define(x.name(), "an input of a body");
      else
        defined_.insert(x.name()); // An input may have an initializer as its default.
    }
    for (const auto& node : graph.node()) {
      check_inputs(node, graph);
      for (const auto& attribute : node.attribute())
        if (attribute.has_g())
          check(attribute.g(), true);
      for (const auto& output : node.output())
        if (!output.empty())
          define(output, "computed by " + onnx_node_text(node));
    }
    for (const auto& output : graph.output())
      if (!defined_.contains(output.name()) || output.name().empty())
        refuse("no node computes the output \"" + output.name() + "\"");
    for (const auto name : own)
      defined_.erase(name);
  }

private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw input_error(model_ + ": " + what);
  }

  void check_inputs(const onnx::NodeProto& node, const onnx::GraphProto& graph) const {
    for (const auto& input : node.input()) {
      if (defined_.contains(input))
        continue;
      const auto maker = std::ranges::find_if(graph.node(), [&](const onnx::NodeProto& other) {
        return std::ranges::find(other.output(), input) != other.output().end();
      });
      refuse(onnx_node_text(node) + " reads \"" + input + "\", which "
             + (maker == graph.node().end() ? "no node computes"
                                            : "is computed later, by " + onnx_node_text(*maker)
                    + ": the nodes form a cycle or are out of order"));
    }
  }

  const std::string& model_;
  std::unordered_set<std::string_view> defined_{""};
};

} // namespace

void check_onnx_names(const onnx::GraphProto& graph, const std::string& model) {
  name_checker{model}.check(graph);
}

} // namespace troupe
