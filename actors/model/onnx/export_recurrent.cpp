// Recurrent layers in ONNX. They differ from the graph's recurrence: ONNX's operators also multiply
// the inputs by weights, have time as the first dimension, and order the gates differently.

#include "actors/model/onnx/exporter.hpp"

namespace troupe {

namespace {

/// For each of ONNX's gates, its position among the graph's gates.
std::vector<std::int64_t> onnx_gates(cell how) {
  switch (how) {
  case cell::rnn:
    return {0};
  case cell::lstm:
    return {0, 3, 1, 2}; // i, o, f, g, taken from i, f, g, o
  case cell::gru:
    return {1, 0, 2}; // u, r, n, taken from r, u, n
  }
  return {};
}

} // namespace

/// True if n is the states of a recurrence, and a matrix product computes the recurrence's input.
/// ONNX has only recurrences of this kind.
bool onnx_exporter::is_states(const node& n) const {
  if (n.op != operation::slice || at(n.inputs[0]).op != operation::recurrent)
    return false;
  const auto& states = at(n.inputs[0]);
  const auto hidden = at(states.inputs[1]).shape.last();
  const bool last =
    n.axes[0] == 2 && static_cast<std::int64_t>(n.axes[1]) == states.shape.last() - hidden;
  const auto* z = &at(states.inputs[0]);
  if (z->op == operation::add_bias) {
    if (!read_once(states.inputs[0]))
      return false;
    z = &at(z->inputs[0]);
  }
  return last && z->op == operation::matmul && z->transpose_b && !z->transpose_a;
}

/// Brings the rows or elements of the gates into ONNX's order, and adds a first dimension of 1 (one
/// direction).
std::string onnx_exporter::gates(const std::string& x, cell how, std::int64_t hidden) {
  std::vector<std::string> parts;
  for (const auto gate : onnx_gates(how))
    parts.push_back(add("Slice",
                        {x, whole_numbers({gate * hidden}), whole_numbers({(gate + 1) * hidden}),
                         whole_numbers({0})}));
  const auto all = parts.size() == 1 ? parts[0] : add("Concat", parts, {integer("axis", 0)});
  return add("Unsqueeze", {all, whole_numbers({0})});
}

std::string onnx_exporter::recurrent(const node& n) {
  const auto how = n.cell;
  const auto hidden = at(n.inputs[1]).shape.last();
  const auto& z = at(n.inputs[0]);
  const bool biased = z.op == operation::add_bias;
  const auto& projection = biased ? at(z.inputs[0]) : z;
  const auto gate_count = static_cast<std::int64_t>(onnx_gates(how).size());
  const auto zeros = expanded(number(0), {1, gate_count * hidden});
  const auto time_first = integers("perm", {1, 0, 2});
  std::vector<std::string> inputs{add("Transpose", {value(projection.inputs[0])}, {time_first}),
                                  gates(value(projection.inputs[1]), how, hidden),
                                  gates(value(n.inputs[1]), how, hidden)};
  if (biased || how == cell::gru) {
    const auto own = biased ? gates(value(z.inputs[1]), how, hidden) : zeros;
    const auto recurrent = how == cell::gru ? gates(value(n.inputs[2]), how, hidden) : zeros;
    inputs.push_back(add("Concat", {own, recurrent}, {integer("axis", 1)}));
  }
  std::vector<attribute> attributes{integer("hidden_size", hidden)};
  if (how == cell::gru)
    attributes.push_back(integer("linear_before_reset", 1));
  const auto* op = how == cell::rnn ? "RNN" : how == cell::lstm ? "LSTM" : "GRU";
  const auto y = add("Squeeze", {add(op, inputs, attributes), whole_numbers({1})});
  return add("Transpose", {y}, {time_first});
}

} // namespace troupe
