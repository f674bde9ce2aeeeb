// ONNX's loops and branches. Loops are unrolled, and branches are decided, when the model is read.

#include "actors/model/onnx/node.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe {

namespace {

onnx_value single(onnx_constant::kind type, std::int64_t x) {
  onnx_constant result;
  result.type = type;
  result.values = {static_cast<double>(x)};
  return result;
}

const onnx::GraphProto& body_of(onnx_node& node, std::string_view name) {
  const auto* x = node.attribute(name);
  if (x == nullptr || !x->has_g())
    node.refuse("attribute \"" + std::string{name} + "\" is missing");
  return x->g();
}

/// Reads a truth value. Throws if the value is not known when the model is read.
bool truth_of(const onnx_node& node, const onnx_value& v, const std::string& what) {
  if (!v.known || v.known->elements() != 1 || std::isnan(v.known->at(0)))
    node.refuse("the " + what + " depends on the input of the model; only a constant is supported");
  return v.known->at(0) != 0;
}

/// Joins the results of all steps in one tensor. Its first dimension is the steps.
onnx_value stacked(const onnx_node& node, const std::vector<onnx_value>& steps) {
  if (steps.empty())
    node.refuse("the loop has no steps, and its results would be empty");
  std::size_t constants = 0;
  for (const auto& v : steps)
    constants += v.known ? v.known->values.size() : 0;
  node.charge(constants);
  std::vector<onnx_value> parts;
  for (const auto& v : steps) {
    auto dims = v.dims();
    dims.insert(dims.begin(), 1);
    parts.push_back(with_dims(node, v, dims));
  }
  return concatenated(node, parts, 0);
}

void loop(onnx_node& node) {
  const auto& body = body_of(node, "body");
  auto steps = std::numeric_limits<std::int64_t>::max();
  if (node.has_input(0)) {
    const auto given = node.number_of(0, "number of steps");
    if (!onnx_constant::is_number(given))
      node.refuse("the number of steps depends on the size of the batch");
    steps = onnx_integer(given);
  }
  const auto carried = node.inputs() < 2 ? 0 : node.inputs() - 2;
  if (static_cast<std::size_t>(body.output_size()) < 1 + carried)
    node.refuse("its body has " + std::to_string(body.output_size())
                + " outputs; expected at least " + std::to_string(1 + carried));
  std::vector<onnx_value> values{{}, single(onnx_constant::kind::boolean, 1)};
  for (std::size_t i = 0; i < carried; ++i)
    values.push_back(node.input(2 + i));
  std::vector<std::vector<onnx_value>> results(static_cast<std::size_t>(body.output_size()) - 1
                                               - carried);
  bool goes_on = !node.has_input(1) || truth_of(node, node.input(1), "condition");
  for (std::int64_t step = 0; goes_on && step < steps; ++step) {
    values[0] = single(onnx_constant::kind::integer, step);
    const auto outputs = node.compute(body, values);
    goes_on = truth_of(node, outputs[0], "condition");
    std::copy_n(outputs.begin() + 1, carried, values.begin() + 2);
    for (std::size_t i = 0; i < results.size(); ++i)
      if (node.has_output(carried + i))
        results[i].push_back(outputs[1 + carried + i]);
  }
  for (std::size_t i = 0; i < carried; ++i)
    node.set(i, values[2 + i]);
  for (std::size_t i = 0; i < results.size(); ++i)
    if (node.has_output(carried + i))
      node.set(carried + i, stacked(node, results[i]));
}

void branch(onnx_node& node) {
  const bool first = truth_of(node, node.input(0), "condition");
  const auto& then_branch = body_of(node, "then_branch");
  const auto& else_branch = body_of(node, "else_branch");
  const auto outputs = node.compute(first ? then_branch : else_branch, {});
  if (outputs.size() < node.outputs())
    node.refuse("the branch has fewer outputs than the node");
  for (std::size_t i = 0; i < node.outputs(); ++i)
    node.set(i, outputs[i]);
}

} // namespace

void add_loop_operators(onnx_operators& all) {
  all["Loop"] = {loop, 1, "unrolled; the number of steps and the condition are constants"};
  all["If"] = {branch, 1, "the condition is a constant"};
}

} // namespace troupe
