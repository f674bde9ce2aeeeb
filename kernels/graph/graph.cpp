#include "kernels/graph/graph.hpp"

#include "kernels/error.hpp"

#include <algorithm>

namespace troupe {

std::string_view to_string(operation op) noexcept {
  switch (op) {
  case operation::placeholder:
    return "placeholder";
  case operation::variable:
    return "variable";
  case operation::constant:
    return "constant";
  case operation::matmul:
    return "matmul";
  case operation::add_bias:
    return "add_bias";
  case operation::sparse_matmul:
    return "sparse_matmul";
  case operation::sparse_matmul_gradient:
    return "sparse_matmul_gradient";
  case operation::add:
    return "add";
  case operation::subtract:
    return "subtract";
  case operation::multiply:
    return "multiply";
  case operation::scale:
    return "scale";
  case operation::divide:
    return "divide";
  case operation::offset:
    return "offset";
  case operation::exp:
    return "exp";
  case operation::log:
    return "log";
  case operation::square_root:
    return "square_root";
  case operation::absolute:
    return "absolute";
  case operation::sign:
    return "sign";
  case operation::erf:
    return "erf";
  case operation::gelu:
    return "gelu";
  case operation::gelu_gradient:
    return "gelu_gradient";
  case operation::softplus:
    return "softplus";
  case operation::maximum:
    return "maximum";
  case operation::minimum:
    return "minimum";
  case operation::at_least:
    return "at_least";
  case operation::at_most:
    return "at_most";
  case operation::greater:
    return "greater";
  case operation::above:
    return "above";
  case operation::select:
    return "select";
  case operation::relu:
    return "relu";
  case operation::leaky_relu:
    return "leaky_relu";
  case operation::tanh:
    return "tanh";
  case operation::sigmoid:
    return "sigmoid";
  case operation::relu_gradient:
    return "relu_gradient";
  case operation::leaky_relu_gradient:
    return "leaky_relu_gradient";
  case operation::tanh_gradient:
    return "tanh_gradient";
  case operation::sigmoid_gradient:
    return "sigmoid_gradient";
  case operation::elementwise:
    return "elementwise";
  case operation::sum:
    return "sum";
  case operation::sum_leading:
    return "sum_leading";
  case operation::sum_last:
    return "sum_last";
  case operation::broadcast:
    return "broadcast";
  case operation::broadcast_leading:
    return "broadcast_leading";
  case operation::broadcast_last:
    return "broadcast_last";
  case operation::softmax:
    return "softmax";
  case operation::softmax_cross_entropy:
    return "softmax_cross_entropy";
  case operation::softmax_cross_entropy_gradient:
    return "softmax_cross_entropy_gradient";
  case operation::softmax_correct:
    return "softmax_correct";
  case operation::binary_correct:
    return "binary_correct";
  case operation::squared_error:
    return "squared_error";
  case operation::to_float:
    return "to_float";
  case operation::dropout:
    return "dropout";
  case operation::conv2d:
    return "conv2d";
  case operation::conv2d_input_gradient:
    return "conv2d_input_gradient";
  case operation::conv2d_weight_gradient:
    return "conv2d_weight_gradient";
  case operation::add_channel_bias:
    return "add_channel_bias";
  case operation::sum_channels:
    return "sum_channels";
  case operation::broadcast_channels:
    return "broadcast_channels";
  case operation::multiply_channels:
    return "multiply_channels";
  case operation::channel_moments:
    return "channel_moments";
  case operation::normalize_channels:
    return "normalize_channels";
  case operation::normalize_channels_gradient:
    return "normalize_channels_gradient";
  case operation::summed_mean:
    return "summed_mean";
  case operation::summed_variance:
    return "summed_variance";
  case operation::max_pool_select:
    return "max_pool_select";
  case operation::max_pool_gradient:
    return "max_pool_gradient";
  case operation::average_pool:
    return "average_pool";
  case operation::average_pool_gradient:
    return "average_pool_gradient";
  case operation::transpose:
    return "transpose";
  case operation::batched_matmul:
    return "batched_matmul";
  case operation::slice:
    return "slice";
  case operation::place:
    return "place";
  case operation::concat:
    return "concat";
  case operation::embedding:
    return "embedding";
  case operation::embedding_gradient:
    return "embedding_gradient";
  case operation::normalize_rows:
    return "normalize_rows";
  case operation::normalize_rows_gradient:
    return "normalize_rows_gradient";
  case operation::multiply_rows:
    return "multiply_rows";
  case operation::causal_softmax:
    return "causal_softmax";
  case operation::recurrent:
    return "recurrent";
  case operation::recurrent_gradient:
    return "recurrent_gradient";
  case operation::reshape:
    return "reshape";
  case operation::stop_gradient:
    return "stop_gradient";
  }
  return "invalid";
}

int elementwise_arity(operation op) noexcept {
  switch (op) {
  case operation::scale:
  case operation::offset:
  case operation::exp:
  case operation::log:
  case operation::square_root:
  case operation::absolute:
  case operation::sign:
  case operation::erf:
  case operation::gelu:
  case operation::softplus:
  case operation::relu:
  case operation::leaky_relu:
  case operation::tanh:
  case operation::sigmoid:
  case operation::at_least:
  case operation::at_most:
  case operation::above:
    return 1;
  case operation::add:
  case operation::subtract:
  case operation::multiply:
  case operation::divide:
  case operation::relu_gradient:
  case operation::leaky_relu_gradient:
  case operation::tanh_gradient:
  case operation::sigmoid_gradient:
  case operation::gelu_gradient:
  case operation::maximum:
  case operation::minimum:
  case operation::greater:
    return 2;
  case operation::select:
    return 3;
  default:
    return 0;
  }
}

const node& expression::node() const {
  if (!valid())
    throw input_error("an expression that belongs to no graph was used");
  return owner_->at(id_);
}

expression graph::append(troupe::node x) {
  const auto id = static_cast<std::uint32_t>(nodes_.size());
  if (x.name.empty())
    x.name = std::string(to_string(x.op)) + "_" + std::to_string(id);
  nodes_.push_back(std::move(x));
  return {*this, id};
}

expression graph::placeholder(std::string name, shape dims, dtype type) {
  for (auto id : placeholders_)
    if (nodes_[id].name == name)
      throw input_error("two placeholders are named \"" + name + "\"");
  troupe::node x;
  x.op = operation::placeholder;
  x.name = std::move(name);
  x.shape = std::move(dims);
  x.type = type;
  x.index = placeholders_.size();
  auto result = append(std::move(x));
  placeholders_.push_back(result.id());
  return result;
}

expression graph::variable(std::string name, shape dims, initializer initial, parameter_kind kind,
                           double decay) {
  const auto& entry = parameters_.add(std::move(name), std::move(dims), initial, kind, decay);
  troupe::node x;
  x.op = operation::variable;
  x.name = entry.name;
  x.shape = entry.shape;
  x.index = parameters_.entries().size() - 1;
  return append(std::move(x));
}

void graph::update_state(expression variable, expression sum) {
  const auto& n = variable.node();
  const bool is_state = &variable.owner() == this && n.op == operation::variable
    && parameters_.entries()[n.index].kind == parameter_kind::state;
  if (!is_state)
    throw input_error("update_state: \"" + n.name + "\" is not a state variable of this graph");
  if (&sum.owner() != this || sum.shape() != n.shape)
    throw input_error("update_state: \"" + sum.name() + "\" " + to_string(sum.shape())
                      + " does not fit \"" + n.name + "\" " + to_string(n.shape)
                      + ": the same shape was expected");
  if (std::ranges::find(state_updates_, variable.id(),
                        &std::pair<std::uint32_t, std::uint32_t>::first)
      != state_updates_.end())
    throw input_error("update_state: \"" + n.name + "\" is updated already");
  state_updates_.emplace_back(variable.id(), sum.id());
}

expression graph::constant(double value, shape dims) {
  troupe::node x;
  x.op = operation::constant;
  x.shape = std::move(dims);
  x.values = {value};
  return append(std::move(x));
}

expression graph::constant(std::vector<double> values, shape dims) {
  if (dims.has_batch() || values.size() != dims.elements())
    throw input_error("a constant of shape " + to_string(dims) + " was given "
                      + std::to_string(values.size()) + " elements");
  troupe::node x;
  x.op = operation::constant;
  x.shape = std::move(dims);
  x.values = std::move(values);
  return append(std::move(x));
}

void graph::rename(expression x, std::string name) {
  nodes_.at(x.id()).name = std::move(name);
}

expression graph::find(std::string_view name) {
  auto i = std::ranges::find(nodes_, name, &node::name);
  if (i == nodes_.end())
    throw input_error("the graph has no tensor named \"" + std::string(name) + "\"");
  return {*this, static_cast<std::uint32_t>(i - nodes_.begin())};
}

std::string to_string(const graph& x) {
  std::string result;
  for (std::size_t id = 0; id < x.nodes().size(); ++id) {
    const auto& n = x.nodes()[id];
    result += std::to_string(id) + " " + n.name + " = " + std::string(to_string(n.op)) + "(";
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      const bool transposed = (i == 0 && n.transpose_a) || (i == 1 && n.transpose_b);
      result += i > 0 ? ", " : "";
      result += x.nodes()[n.inputs[i]].name;
      result += transposed ? "^T" : "";
    }
    if (n.op == operation::scale || n.op == operation::squared_error)
      result += ", " + std::to_string(n.factor);
    if (n.op == operation::constant && n.values.size() == 1)
      result += std::to_string(n.values[0]);
    result += ") : " + std::string(to_string(n.type)) + " " + to_string(n.shape) + "\n";
  }
  return result;
}

} // namespace troupe
