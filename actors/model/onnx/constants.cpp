// ONNX's constants and types, operators that return shapes, and operators that change nothing.

#include "actors/model/onnx/model.hpp"
#include "actors/model/onnx/node.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

/// Largest number of elements of a constant that consists of one repeated number. As a tensor of
/// the graph, it takes 1 GiB.
constexpr std::size_t most_computed_elements = std::size_t{1} << 28;

// -- types and constants ------------------------------------------------------------------------

void cast_to(onnx_node& node, onnx_constant::kind to) {
  using kind = onnx_constant::kind;
  const auto& v = node.input(0);
  if (!v.known) {
    const bool from_whole = v.x.node().type == dtype::int32;
    if (to == kind::integer && !from_whole)
      node.refuse(std::string{v.is_truth ? "truth values" : "real numbers"}
                  + " that depend on the model's input become whole numbers, which troupe does not "
                    "compute with; leave out the cast, or cast to a real type");
    const auto dims = v.x.shape();
    if (to == kind::boolean) {
      const auto real = from_whole ? to_float(v.x, dims) : v.x;
      // NaN counts as true. `above(size, -1)` is 0 only for NaN, because every comparison with NaN
      // is false.
      const auto size = absolute(real);
      const auto is_nan = offset(scale(above(size, -1), -1), 1);
      onnx_value truth{maximum(above(size, 0), is_nan), v.batch_at};
      truth.is_truth = true;
      node.set(std::move(truth));
      return;
    }
    if (to != kind::real || !from_whole) {
      auto same = v;
      same.is_truth = false;
      node.set(std::move(same));
      return;
    }
    onnx_value real{to_float(v.x, dims), v.batch_at};
    real.of_tokens = std::make_shared<const onnx_of_tokens>(
      onnx_of_tokens{v.x, [](double token) { return token; }, kind::real, real.x});
    node.set(std::move(real));
    return;
  }
  auto result = *v.known;
  result.type = to;
  for (auto& x : result.values) {
    if (to == kind::real && v.known->type == kind::integer && !onnx_constant::is_number(x))
      node.refuse("the size of the batch becomes a real number");
    if (to == kind::boolean && v.known->type == kind::integer && std::isnan(x))
      node.refuse("the size of the batch becomes a truth value");
    if (to == kind::boolean)
      x = x != 0 ? 1 : 0;
    else if (to == kind::integer && v.known->type == kind::real)
      x = static_cast<double>(onnx_integer(x));
  }
  node.set(std::move(result));
}

void cast(onnx_node& node) {
  using onnx::TensorProto;
  const auto to = node.integer("to", 0);
  node.ignore("saturate");
  node.ignore("round_mode");
  // Half precision is computed as FLOAT.
  const bool real = to == TensorProto::FLOAT || to == TensorProto::DOUBLE
    || to == TensorProto::FLOAT16 || to == TensorProto::BFLOAT16;
  const bool whole = to == TensorProto::INT64 || to == TensorProto::INT32;
  if (!real && !whole && to != TensorProto::BOOL)
    node.refuse("attribute \"to\" is " + std::to_string(to)
                + "; expected FLOAT, FLOAT16, BFLOAT16, DOUBLE, INT32, INT64 or BOOL");
  cast_to(node,
          real      ? onnx_constant::kind::real
            : whole ? onnx_constant::kind::integer
                    : onnx_constant::kind::boolean);
}

void cast_like(onnx_node& node) {
  const auto& like = node.folded_input(1);
  node.ignore("saturate");
  node.ignore("round_mode");
  if (like.known)
    cast_to(node, like.known->type);
  else
    cast_to(node,
            like.is_truth                          ? onnx_constant::kind::boolean
              : like.x.node().type == dtype::int32 ? onnx_constant::kind::integer
                                                   : onnx_constant::kind::real);
}

void constant(onnx_node& node) {
  onnx_constant result;
  if (const auto* x = node.attribute("value"); x != nullptr && x->has_t()) {
    result = read_onnx_tensor(x->t());
  } else if (node.has("value_float")) {
    result.values = {node.real("value_float", 0)};
  } else if (node.has("value_int")) {
    result.type = onnx_constant::kind::integer;
    result.values = {static_cast<double>(node.integer("value_int", 0))};
  } else if (node.has("value_floats")) {
    result.values = node.reals("value_floats");
    result.dims = {static_cast<std::int64_t>(result.values.size())};
  } else if (node.has("value_ints")) {
    result.type = onnx_constant::kind::integer;
    for (const auto x : node.integers("value_ints"))
      result.values.push_back(static_cast<double>(x));
    result.dims = {static_cast<std::int64_t>(result.values.size())};
  } else {
    node.refuse(
      "expected one of the attributes value, value_float, value_floats, value_int, value_ints");
  }
  node.set(std::move(result));
}

void constant_of_shape(onnx_node& node) {
  onnx_constant result;
  result.values = {0};
  if (const auto* x = node.attribute("value"); x != nullptr && x->has_t()) {
    const auto value = read_onnx_tensor(x->t());
    if (value.elements() != 1)
      node.refuse("attribute \"value\" must have exactly one element");
    result.type = value.type;
    result.values = value.values;
  }
  for (const auto x : elements_of(node.known(0, "shape"), 64, node)) {
    if (!(onnx_constant::is_number(x) || x == onnx_constant::batch_size) || x < 0)
      node.refuse("an extent is negative or depends on the size of the batch");
    result.dims.push_back(x == onnx_constant::batch_size ? onnx_constant::batch : onnx_integer(x));
  }
  if (const auto n = result.elements(); n > most_computed_elements)
    node.refuse("a constant of shape " + shape_text(result.dims) + " has " + std::to_string(n)
                + " elements; at most " + std::to_string(most_computed_elements) + " are accepted");
  node.set(std::move(result));
}

void shape_of(onnx_node& node) {
  const auto dims = extents_of(node.folded_input(0));
  const auto n = static_cast<std::int64_t>(dims.size());
  const auto place = [&](std::int64_t x) {
    return std::clamp<std::int64_t>(x < 0 ? x + n : x, 0, n);
  };
  const auto begin = place(node.integer("start", 0));
  const auto end = std::max(begin, place(node.integer("end", n)));
  onnx_constant result;
  result.type = onnx_constant::kind::integer;
  result.dims = {end - begin};
  result.values.assign(dims.begin() + begin, dims.begin() + end);
  node.set(std::move(result));
}

void size_of_tensor(onnx_node& node) {
  const auto dims = unfolded(node.folded_input(0)).dims();
  const bool batch = std::ranges::find(dims, onnx_constant::batch) != dims.end();
  onnx_constant result;
  result.type = onnx_constant::kind::integer;
  result.values = {static_cast<double>(count_elements(dims))
                   * (batch ? onnx_constant::batch_size : 1)};
  node.set(std::move(result));
}

void range_of_numbers(onnx_node& node) {
  const auto begin = node.number_of(0, "start");
  const auto end = node.number_of(1, "limit");
  const auto step = node.number_of(2, "delta");
  for (const auto x : {begin, end, step})
    if (std::isfinite(x) && !onnx_constant::is_number(x))
      node.refuse("the range depends on the size of the batch");
  const auto count = std::ceil((end - begin) / step);
  if (!std::isfinite(count) || count > static_cast<double>(node.limit()))
    node.refuse("the range has no end, or has too many numbers");
  onnx_constant result;
  result.type = node.known(0, "start").type;
  for (int i = 0; i < count; ++i)
    result.values.push_back(begin + i * step);
  result.dims = {static_cast<std::int64_t>(result.values.size())};
  node.set(std::move(result));
}

// -- operators that change nothing ----------------------------------------------------------------

void dropout(onnx_node& node) {
  const auto ratio = node.has_input(1) ? node.number_of(1, "ratio") : node.real("ratio", 0.5);
  node.ignore("seed");
  if (node.version() < 7)
    node.require("is_test", 1, 0);
  const bool drops = node.has_input(2) && node.number_of(2, "training mode") != 0 && ratio != 0;
  if (drops && node.training()) {
    node.refuse_output(1, "mask");
    const auto& v = node.input(0);
    // Each step of a loop has its own mask.
    const auto body = node.body() > 0 ? " " + std::to_string(node.body()) : std::string{};
    const auto mask = node.proto().name() + node.proto().output(0) + body;
    node.set({troupe::dropout(node.tensor(0), ratio, mask), v.batch_at});
    return;
  }
  node.set(node.input(0));
  onnx_constant all;
  all.type = onnx_constant::kind::boolean;
  all.dims = node.input(0).dims();
  all.values = {1};
  node.set(1, std::move(all));
}

void identity(onnx_node& node) {
  auto v = node.input(0);
  const bool stops = node.integer(onnx_model::stops_gradient, 0) != 0;
  if (stops && !v.known && v.x.node().type == dtype::float32)
    v.x = stop_gradient(v.x);
  node.set(std::move(v));
}

} // namespace

void add_constant_operators(onnx_operators& all) {
  all["Cast"] = {cast, 1,
                 "FLOAT, FLOAT16 and BFLOAT16 (as FLOAT), DOUBLE, INT32, INT64, BOOL; no computed "
                 "whole numbers"};
  all["CastLike"] = {cast_like, 15, "as Cast"};
  all["Constant"] = {constant, 1};
  all["ConstantOfShape"] = {constant_of_shape, 9};
  all["Shape"] = {shape_of, 1};
  all["Size"] = {size_of_tensor, 1};
  all["Range"] = {range_of_numbers, 11, "constants only"};
  all["Dropout"] = {dropout, 1, "the ratio is a constant"};
  all["Identity"] = {identity, 1};
}

} // namespace troupe
