#include "kernels/graph/precision.hpp"

#include "kernels/graph/node_builder.hpp"
#include "kernels/graph/operation_traits.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// The common type of all floating-point inputs except inputs[ignored]. Returns float32 if their
/// types differ or if there are no such inputs.
dtype common_type(std::span<const expression> inputs,
                  std::size_t ignored = operation_traits::none) {
  std::optional<dtype> result;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto type = inputs[i].node().type;
    if (!is_float(type) || i == ignored)
      continue;
    if (result && *result != type)
      return dtype::float32;
    result = type;
  }
  return result.value_or(dtype::float32);
}

void choose_product(node& x, std::vector<expression>& inputs, std::size_t kept) {
  if (const auto type = inputs[0].owner().precision(); is_narrow(type))
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (i != kept)
        inputs[i] = inputs[i].owner().casted(inputs[i], type);
  const auto type = common_type(inputs, kept);
  x.type = x.shape.has_batch() ? type : dtype::float32;
}

/// Appends to `to` casts of the parameters that products read. For each node of `source`, `ids` has
/// the id of its copy in `to`.
void cast_parameters(const graph& source, graph& to, const std::vector<std::uint32_t>& ids) {
  for (const auto& x : source.nodes()) {
    if (traits_of(x.op).precision != operation_precision::product)
      continue;
    for (auto input : x.inputs)
      if (source.at(input).op == operation::variable)
        to.casted({to, ids[input]}, to.precision());
  }
}

expression copy_leaf(const graph& source, const node& x, graph& to) {
  if (x.op == operation::placeholder)
    return to.placeholder(x.name, x.shape, x.type);
  if (x.op == operation::constant)
    return to.append(x);
  const auto& entry = source.parameters().entries()[x.index];
  return to.variable(entry.name, entry.shape, entry.initial, entry.kind, entry.decay);
}

} // namespace

void choose_type(node& x, std::vector<expression>& inputs) {
  const auto& traits = traits_of(x.op);
  if (traits.precision == operation_precision::product) {
    choose_product(x, inputs, traits.keeps_type);
    return;
  }
  if (x.op == operation::cast || !is_float(x.type)
      || std::ranges::none_of(inputs, [](auto y) { return is_narrow(y.node().type); }))
    return;
  // A square is float32, because the square of a float16 may be too large for float16.
  if (x.op == operation::multiply && inputs[0] == inputs[1]) {
    x.type = dtype::float32;
    return;
  }
  if (traits.precision == operation_precision::same)
    x.type = common_type(inputs);
  else if (traits.precision == operation_precision::first)
    x.type = inputs[0].node().type;
}

graph lower_precision(const graph& source, dtype type, std::vector<std::uint32_t>& ids) {
  graph result;
  result.set_precision(type);
  ids.assign(source.nodes().size(), 0);
  for (std::uint32_t id = 0; id < ids.size(); ++id)
    if (const auto& x = source.at(id); x.inputs.empty())
      ids[id] = copy_leaf(source, x, result).id();
  cast_parameters(source, result, ids);
  for (std::uint32_t id = 0; id < ids.size(); ++id) {
    auto x = source.at(id);
    if (x.inputs.empty())
      continue;
    std::vector<expression> inputs;
    for (auto input : x.inputs)
      inputs.emplace_back(result, ids[input]);
    x.inputs.clear();
    ids[id] = x.op == operation::cast ? result.casted(inputs[0], x.type).id()
                                      : append(std::move(x), inputs).id();
  }
  for (const auto& [variable, sum] : source.state_updates())
    result.update_state({result, ids[variable]}, {result, ids[sum]});
  return result;
}

} // namespace troupe
