#include "kernels/graph/sparse_operations.hpp"

#include "kernels/error.hpp"
#include "kernels/graph/node_builder.hpp"

namespace troupe {

namespace {

void check_sparse(operation op, expression x) {
  if (x.node().type != dtype::sparse || x.shape().rank() != 2 || !x.shape().has_batch())
    refuse(op, describe(x) + " is not sparse; expected a sparse placeholder (batch, n)");
}

} // namespace

expression sparse_matmul(expression x, expression weight) {
  constexpr auto op = operation::sparse_matmul;
  check_sparse(op, x);
  check_float(op, weight);
  if (weight.shape().rank() != 2 || weight.shape().has_batch()
      || weight.shape()[0] != x.shape().last())
    refuse(op,
           describe(x) + " and " + describe(weight)
             + " do not fit: expected a row of weights per feature, ("
             + std::to_string(x.shape().last()) + ", units)");
  return append(make_node(op, {shape::batch, weight.shape().last()}), {x, weight});
}

expression sparse_matmul_gradient(expression x, expression g) {
  constexpr auto op = operation::sparse_matmul_gradient;
  check_sparse(op, x);
  check_float(op, g);
  if (g.shape().rank() != 2 || !g.shape().has_batch())
    refuse(op, describe(x) + " and " + describe(g) + " do not fit: expected (batch, units)");
  return append(make_node(op, {x.shape().last(), g.shape().last()}), {x, g});
}

expression sparse_dense_layer(expression x, const std::string& name, std::int64_t units,
                              activation how, bool bias) {
  if (units < 1)
    throw input_error("layer \"" + name + "\" has " + std::to_string(units)
                      + " units; expected at least 1");
  check_sparse(operation::sparse_matmul, x);
  auto& owner = x.owner();
  auto weights = initializer::glorot_uniform();
  weights.inputs_first = true;
  auto y = sparse_matmul(x, owner.variable(name + ".weight", {x.shape().last(), units}, weights));
  if (bias)
    y = add_bias(y, owner.variable(name + ".bias", {units}));
  return activate(y, how);
}

} // namespace troupe
