#include "kernels/graph/graph.hpp"

#include "kernels/error.hpp"

#include <algorithm>

namespace troupe {

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
                      + ": expected the same shape");
  if (std::ranges::find(state_updates_, variable.id(),
                        &std::pair<std::uint32_t, std::uint32_t>::first)
      != state_updates_.end())
    throw input_error("update_state: \"" + n.name
                      + "\" is updated already: a batch normalization can be used "
                        "only once; give each use a layer of its own");
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

expression graph::casted(expression x, dtype type) {
  if (x.node().type == type)
    return x;
  const auto [found, added] = casts_.try_emplace({x.id(), type}, 0);
  if (added) {
    troupe::node result;
    result.op = operation::cast;
    result.name = x.name() + " as " + std::string(to_string(type));
    result.shape = x.shape();
    result.type = type;
    result.inputs = {x.id()};
    found->second = append(std::move(result)).id();
  }
  return {*this, found->second};
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
