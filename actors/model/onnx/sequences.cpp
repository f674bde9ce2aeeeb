// ONNX's recurrent operators. The graph orders gates as PyTorch does. ONNX orders them differently.

#include "actors/model/onnx/model.hpp"
#include "actors/model/onnx/node.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"

#include <algorithm>
#include <string>

namespace troupe {

namespace {

/// For each gate of the graph, its position among ONNX's gates.
std::vector<std::int64_t> gates_of(cell how) {
  switch (how) {
  case cell::rnn:
    return {0};
  case cell::lstm:
    return {0, 2, 3, 1}; // i, f, g, o, taken from i, o, f, g
  case cell::gru:
    return {1, 0, 2}; // r, u, n, taken from u, r, n
  }
  return {};
}

/// Rows of w (gates * hidden, ...), starting at `first`, in the graph's order of gates.
expression reordered(expression w, cell how, std::int64_t hidden, std::int64_t first) {
  const auto order = gates_of(how);
  std::vector<expression> parts;
  for (const auto gate : order)
    parts.push_back(slice(w, 0, first + gate * hidden, first + (gate + 1) * hidden));
  return parts.size() == 1 ? parts[0] : concat(parts, 0);
}

/// Some inputs must be 0: the graph's initial states are 0, and it has no peepholes.
const onnx_constant& check_zero(const onnx_node& node, std::size_t input, const std::string& what) {
  const auto& c = node.known(input, what);
  if (!std::ranges::all_of(c.values, [](double x) { return x == 0; }))
    node.refuse("the " + what + " is not 0");
  return c;
}

/// Initial states: (directions, batch, hidden), or with batch_first (batch, directions, hidden).
void check_initial(const onnx_node& node, std::size_t input, const std::string& what,
                   std::int64_t directions, std::int64_t hidden, bool batch_first) {
  if (!node.has_input(input))
    return;
  auto dims = check_zero(node, input, what).dims;
  const std::size_t batch_at = batch_first ? 0 : 1;
  const auto is_batch = [&](std::int64_t extent) {
    return extent == onnx_constant::batch || extent == 1 || extent == node.example();
  };
  std::vector<std::int64_t> expected{directions, directions, hidden};
  expected[batch_at] = onnx_constant::batch;
  if (dims.size() == expected.size() && is_batch(dims[batch_at]))
    dims[batch_at] = onnx_constant::batch;
  if (dims != expected)
    node.refuse("the " + what + " has the shape " + shape_text(dims) + "; expected "
                + shape_text(expected) + " (LSTMs with PyTorch's proj_size are not supported)");
}

void check_attributes(onnx_node& node, cell how, std::int64_t directions, std::int64_t hidden,
                      bool batch_first) {
  auto expected = std::vector<std::string>{"Tanh"};
  if (how == cell::lstm)
    expected = {"Sigmoid", "Tanh", "Tanh"};
  if (how == cell::gru)
    expected = {"Sigmoid", "Tanh"};
  const auto once = expected;
  if (directions == 2)
    expected.insert(expected.end(), once.begin(), once.end());
  if (const auto found = node.texts("activations"); !found.empty() && found != expected)
    node.refuse("attribute \"activations\" is not the default");
  if (node.has("clip"))
    node.refuse("attribute \"clip\" is not supported");
  if (how == cell::lstm)
    node.require("input_forget", 0, 0);
  if (node.has_input(4))
    node.refuse("lengths of single sequences are not supported");
  check_initial(node, 5, "initial state", directions, hidden, batch_first);
  if (how == cell::lstm) {
    check_initial(node, 6, "initial cell state", directions, hidden, batch_first);
    if (node.has_input(7))
      check_zero(node, 7, "peephole");
    node.refuse_output(2, "last cell state");
  }
}

/// The input as (batch, time, features).
expression sequence_of(onnx_node& node, bool batch_first) {
  const auto& v = node.input(0);
  if (v.rank() != 3 || !v.has_batch() || v.batch_at != (batch_first ? 0U : 1U))
    node.refuse("expected an input " + std::string{batch_first ? "(batch, time," : "(time, batch,"}
                + " features), found " + shape_text(v.dims()));
  return v.x;
}

/// The part of an input (directions, extents...) for direction `at`, of shape (extents...).
expression part_of(const onnx_node& node, std::size_t input, std::int64_t directions,
                   std::int64_t at, const std::vector<std::int64_t>& extents) {
  const auto w = node.tensor(input);
  auto expected = extents;
  expected.insert(expected.begin(), directions);
  if (w.shape() != shape{expected})
    node.refuse((input == 3 ? "biases " : "weights ") + to_string(w.shape()) + " are not of shape "
                + to_string(shape{expected}));
  return reshape(directions == 1 ? w : slice(w, 0, at, at + 1), shape{extents});
}

/// The hidden states (batch, time, hidden) of direction `at`.
/// @param after the attribute linear_before_reset of a GRU
/// @param single_bias see onnx_model::single_bias
expression hidden_states(const onnx_node& node, cell how, bool after, bool single_bias,
                         expression x, std::int64_t hidden, std::int64_t directions,
                         std::int64_t at) {
  const auto n = static_cast<std::int64_t>(gates_of(how).size()) * hidden;
  const auto features = x.shape().last();
  const auto matrix = [&](std::size_t input, std::int64_t columns) {
    return reordered(part_of(node, input, directions, at, {n, columns}), how, hidden, 0);
  };
  const auto w = matrix(1, features);
  const auto r = matrix(2, hidden);
  auto z = dense(x, w);
  expression recurrent_bias;
  if (node.has_input(3)) {
    const auto flat = part_of(node, 3, directions, at, {2 * n});
    const auto own = reordered(flat, how, hidden, 0);
    recurrent_bias = reordered(flat, how, hidden, n);
    if (single_bias)
      recurrent_bias = stop_gradient(recurrent_bias);
    z = add_bias(z, how == cell::gru && after ? own : own + recurrent_bias);
  }
  if (how == cell::rnn)
    return rnn(z, r);
  if (how == cell::lstm)
    return lstm(z, r);
  if (!after)
    return gru_reset_before(z, r);
  if (!recurrent_bias.valid())
    recurrent_bias = node.target().constant(0, {n});
  return gru(z, r, recurrent_bias);
}

template <cell how>
void recurrence(onnx_node& node) {
  const auto direction = node.text("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    node.refuse("attribute \"direction\" is \"" + direction
                + "\"; expected forward, reverse or bidirectional");
  const std::int64_t directions = direction == "bidirectional" ? 2 : 1;
  const bool batch_first = node.integer("layout", 0) != 0;
  const auto hidden = node.integer("hidden_size", 0);
  if (hidden < 1 || hidden > (std::int64_t{1} << 20))
    node.refuse("attribute \"hidden_size\" is " + std::to_string(hidden));
  check_attributes(node, how, directions, hidden, batch_first);
  const bool after = node.integer("linear_before_reset", 0) != 0;
  const bool single_bias = node.integer(onnx_model::single_bias, 0) != 0;
  const auto x = sequence_of(node, batch_first);
  const auto time = x.shape()[1];
  std::vector<expression> all;
  std::vector<expression> last;
  for (std::int64_t at = 0; at < directions; ++at) {
    const bool backwards = direction == "reverse" || at == 1;
    const auto h = hidden_states(node, how, after, single_bias, backwards ? reverse(x, 1) : x,
                                 hidden, directions, at);
    last.push_back(slice(h, 1, time - 1, time));
    all.push_back(reshape(backwards ? reverse(h, 1) : h, {shape::batch, time, 1, hidden}));
  }
  const auto joined = [](const std::vector<expression>& parts, std::size_t axis) {
    return parts.size() == 1 ? parts[0] : concat(parts, axis);
  };
  // All states: (time, directions, batch, hidden), or (batch, time, directions, hidden).
  node.set(0, {joined(all, 2), batch_first ? 0U : 2U});
  if (node.has_output(1))
    node.set(1, {joined(last, 1), batch_first ? 0U : 1U});
}

} // namespace

void add_sequence_operators(onnx_operators& all) {
  all["RNN"] = {recurrence<cell::rnn>, 1,
                "default activations, no clip, an initial state of 0, equal lengths"};
  all["LSTM"] = {
    recurrence<cell::lstm>, 1,
    "default activations, no clip, initial states of 0, equal lengths, no last cell state"};
  all["GRU"] = {recurrence<cell::gru>, 1,
                "default activations, no clip, an initial state of 0, equal lengths"};
}

} // namespace troupe
