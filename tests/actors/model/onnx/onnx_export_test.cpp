// Exports graphs as ONNX models. ONNX's own checker must accept the models. If they are imported
// again, they must compute the same values.

#include "actors/model/onnx/export.hpp"

#include "actors/model/onnx/exporter.hpp"
#include "actors/model/onnx/importer.hpp"
#include "actors/model/onnx/model.hpp"
#include "kernels/devices/graph_session.hpp"
#include "kernels/graph/channel_operations.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operation_traits.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"
#include "tests/support/input_errors.hpp"
#include "tests/support/skip.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include <onnx/onnx_pb.h>
#ifdef TROUPE_ONNX_CHECKER
#include <onnx/checker.h>
#include <onnx/shape_inference/implementation.h>
#endif

BOOST_AUTO_TEST_SUITE(onnx_export)

using namespace troupe;
using namespace troupe::test;

namespace {

struct exported {
  graph g;
  expression x;
  expression y;

  exported(const shape& dims, dtype type, const std::function<expression(expression)>& build) {
    x = g.placeholder("features", dims, type);
    y = build(x);
  }
};

std::vector<float> weights_of(const graph& g) {
  std::vector<float> result(g.parameters().size());
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = std::sin(0.9F * static_cast<float>(i) + 0.3F) / 2;
  return result;
}

onnx_model reread(const std::string& bytes) {
  return onnx_model::parse(std::as_bytes(std::span{bytes}), "exported");
}

std::vector<float> compute(expression x, expression y, const std::vector<float>& weights) {
  graph_session<float> s{x.owner()};
  std::ranges::copy(weights, s.variables().begin());
  std::vector<float> features;
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < 3 * x.shape().elements(1); ++i) {
    features.push_back(std::cos(0.4F * static_cast<float>(i)));
    tokens.push_back(static_cast<std::int32_t>((5 * i + i * i) % 7));
  }
  if (x.node().type == dtype::int32)
    return s.run({{x, std::span<const std::int32_t>{tokens}}}, {y})[0];
  return s.run({{x, std::span<const float>{features}}}, {y})[0];
}

#ifdef TROUPE_ONNX_CHECKER
/// The output shape that ONNX's own shape inference gives. -1 for a dimension that depends on the
/// batch.
std::vector<std::int64_t> inferred(const std::string& bytes) {
  onnx::ModelProto model;
  BOOST_REQUIRE(model.ParseFromString(bytes));
  onnx::checker::check_model(model);
  const onnx::ShapeInferenceOptions strict{true, 1, true};
  onnx::shape_inference::InferShapes(model, onnx::OpSchemaRegistry::Instance(), strict);
  std::vector<std::int64_t> result;
  for (const auto& dim : model.graph().output(0).type().tensor_type().shape().dim())
    result.push_back(dim.has_dim_value() ? dim.dim_value() : -1);
  return result;
}
#endif

/// Exports a graph, checks the model, imports it, and compares the values.
void check(const exported& from) {
  const auto weights = weights_of(from.g);
  const auto bytes = export_onnx(from.x, from.y, weights, "test").bytes;
#ifdef TROUPE_ONNX_CHECKER
  BOOST_TEST(inferred(bytes) == from.y.shape().extents(), boost::test_tools::per_element());
#endif
  const auto model = reread(bytes);
  graph g;
  const auto x = g.placeholder("x", from.x.shape(), from.x.node().type);
  const auto outputs = import_onnx(model, g, {x});
  BOOST_TEST_REQUIRE(outputs.size() == 1u);
  BOOST_TEST(to_string(outputs[0].x.shape()) == to_string(from.y.shape()));
  BOOST_TEST(g.parameters().entries().size() == from.g.parameters().entries().size());
  for (const auto& entry : from.g.parameters().entries()) {
    const auto* again = g.parameters().find(entry.name);
    BOOST_TEST_REQUIRE(again != nullptr, entry.name << " is missing");
    BOOST_TEST(to_string(again->shape) == to_string(entry.shape));
  }
  const auto wanted = compute(from.x, from.y, weights);
  const auto found = compute(x, outputs[0].x, model.values(g.parameters()));
  BOOST_TEST_REQUIRE(found.size() == wanted.size());
  BOOST_TEST(found.size() > 0u);
  for (std::size_t i = 0; i < found.size(); ++i)
    BOOST_TEST(std::abs(found[i] - wanted[i]) <= 2e-6F * (1 + std::abs(wanted[i])));
}

onnx::ModelProto proto_of(const exported& from) {
  onnx::ModelProto result;
  BOOST_TEST_REQUIRE(
    result.ParseFromString(export_onnx(from.x, from.y, weights_of(from.g), "test").bytes));
  return result;
}

/// The operators of the exported model, without the Identity at its end: "Conv Relu".
std::string operators_of(const exported& from) {
  std::string result;
  const auto proto = proto_of(from);
  for (int i = 0; i + 1 < proto.graph().node_size(); ++i)
    result += (i > 0 ? " " : "") + proto.graph().node(i).op_type();
  return result;
}

/// The result of the exported model, imported into another graph.
expression imported(const exported& from, graph& g) {
  const auto model = reread(export_onnx(from.x, from.y, weights_of(from.g), "test").bytes);
  return import_onnx(model, g, {g.placeholder("x", from.x.shape(), from.x.node().type)}).at(0).x;
}

const shape rows{shape::batch, 5};
const shape sequences{shape::batch, 4, 6};
const shape pictures{shape::batch, 2, 6, 5};

} // namespace

BOOST_AUTO_TEST_CASE(dense_layers) {
  for (const auto how : {activation::none, activation::relu, activation::tanh, activation::sigmoid,
                         activation::leaky_relu, activation::gelu, activation::silu})
    check({rows, dtype::float32, [&](expression x) {
             return dense_layer(dense_layer(x, "a", 4, how), "b", 3, activation::none, false);
           }});
  check({sequences, dtype::float32, [](expression x) { return dense_layer(x, "a", 3); }});
  // A dense product that is read by two nodes is not merged (fused) into either of them.
  check({rows, dtype::float32, [](expression x) {
           const auto z = dense(x, x.owner().variable("w", {5, 5}));
           return add_bias(z, x.owner().variable("b", {5})) + z;
         }});
}

BOOST_AUTO_TEST_CASE(element_by_element) {
  check({rows, dtype::float32,
         [](expression x) { return erfc(scale(x, 9)) + greater(x, scale(x, 2)) + above(x, 0.1); }});
  check({rows, dtype::float32, [](expression x) {
           return sine(scale(x, 5)) + cosine(scale(x, 5)) + round(scale(x, 3.1));
         }});
  // Results near 0 stay exact: they are not computed as a difference of larger numbers.
  check({rows, dtype::float32, [](expression x) { return log(erfc(scale(x, 6))); }});
  check({rows, dtype::float32, [](expression x) {
           const auto p = offset(x * x, 0.5);
           return exp(scale(x, 0.3)) / p - log(p) + square_root(p) * sign(x) + absolute(erf(x))
             + softplus(stop_gradient(x)) + softmax(x) + x.owner().constant(0.25, x.shape());
         }});
  check({rows, dtype::float32, [](expression x) {
           const auto mask = x.owner().constant({1, 0, 1, 1, 0, 0, 1, 0, 0, 1}, {2, 5});
           const auto w = x.owner().variable("w", {2, 5});
           const auto v = x.owner().variable("v", {2, 5});
           const auto rows = sum_leading(select(mask, w, v));
           return add_bias(maximum(x, scale(x, -0.5)) + minimum(x, offset(x * x, -0.1)), rows)
             + at_most(at_least(x, -0.25), 0.5);
         }});
  check({rows, dtype::float32, [](expression x) {
           return add_bias(x, x.owner().constant({1, 2, 3, 4, 5}, {5}));
         }});
}

// Each column of the features holds ids of its own table. ONNX must slice the ids before it looks
// up rows, because the ids of the other columns may be beyond the end of the table.
BOOST_AUTO_TEST_CASE(tables_of_different_sizes) {
  const exported from{
    {shape::batch, 3}, dtype::int32, [](expression x) {
      auto& g = x.owner();
      const auto column = [&](std::int64_t i, const std::string& name) {
        const auto ids = reshape(slice(x, 1, i, i + 1), {shape::batch});
        return embedding(g.variable(name, {7 + i, 4}), ids);
      };
      const auto both = slice(x, 1, 1, 3);
      const auto rows = embedding(g.variable("c", {9, 4}), both);
      const auto half = slice(rows, 2, 0, 2);
      return concat({column(0, "a"), column(1, "b"), slice(flatten(rows), 1, 3, 6), flatten(half)},
                    1);
    }};
  check(from);
  const auto proto = proto_of(from);
  std::size_t lookups = 0;
  for (const auto& node : proto.graph().node()) {
    lookups += node.op_type() == "Gather" ? 1 : 0;
    if (node.op_type() == "Gather")
      BOOST_TEST(node.input(1) != proto.graph().input(0).name(), node.input(0));
  }
  BOOST_TEST(lookups == 3u);
}

// Weights have the usual names of the model's input and output. The weights keep their names, and
// the input and output get others.
BOOST_AUTO_TEST_CASE(weights_with_the_names_of_ports) {
  const exported from{rows, dtype::float32, [](expression x) {
                        auto& g = x.owner();
                        return dense(x, g.variable("output", {3, 5}), g.variable("output_2", {3}))
                          * dense(x, g.variable("features", {3, 5}));
                      }};
  check(from);
  const auto model = export_onnx(from.x, from.y, weights_of(from.g), "test");
  BOOST_TEST(model.input == "features_2");
  BOOST_TEST(model.output == "output_3");
}

// If the exporter tried all numbers for each name, this test would take minutes.
BOOST_AUTO_TEST_CASE(many_nodes_of_a_kind) {
  constexpr int count = 100'000;
  const exported from{rows, dtype::float32, [](expression x) {
                        for (int i = 0; i < count; ++i)
                          x = softmax(x);
                        return x;
                      }};
  const auto proto = proto_of(from);
  BOOST_TEST(proto.graph().node(count - 1).output(0) == "Softmax_" + std::to_string(count));
}

// In onnxruntime, a Clip with only one limit also clips infinity to the largest float.
BOOST_AUTO_TEST_CASE(limits_on_one_side) {
  const exported low{rows, dtype::float32, [](expression x) { return at_least(x, -0.25); }};
  const exported high{rows, dtype::float32, [](expression x) { return at_most(x, 0.5); }};
  BOOST_TEST(operators_of(low) == "Constant Max");
  BOOST_TEST(operators_of(high) == "Constant Min");
  graph g;
  BOOST_TEST((imported(low, g).node().op == operation::at_least));
  graph other;
  BOOST_TEST((imported(high, other).node().op == operation::at_most));
}

BOOST_AUTO_TEST_CASE(images) {
  window how{3, 2, 2, 1, 1, 1, 1};
  check({pictures, dtype::float32, [&](expression x) {
           auto y = conv2d_layer(x, "c", 4, how, activation::relu);
           how.groups = 2;
           y = conv2d_layer(y, "d", 2, how, activation::none, false);
           return dense_layer(flatten(y), "e", 3);
         }});
  check({{shape::batch, 6, 2, 3}, dtype::float32, [](expression x) {
           auto& g = x.owner();
           return group_norm(x, g.variable("gain", {6}), g.variable("bias", {6}), 3, 1e-3);
         }});
  const window pool{2, 3, 1, 2, 1, 0, 1};
  check({pictures, dtype::float32, [&](expression x) { return max_pool(x, pool); }});
  check({pictures, dtype::float32, [&](expression x) { return average_pool(x, pool); }});
  check({pictures, dtype::float32, [](expression x) { return global_average_pool(x); }});
  check({pictures, dtype::float32, [](expression x) {
           auto& g = x.owner();
           const auto b = g.variable("b", {2});
           return add_channel_bias(x, b) * broadcast_channels(b, {shape::batch, 2, 6, 5});
         }});
}

BOOST_AUTO_TEST_CASE(windows_of_all_forms) {
  check({pictures, dtype::float32, [](expression x) {
           return conv2d_layer(x, "c", 3, {3, 2, 1, 2, 2, 1, 1, 2, 3});
         }});
  const window up{3, 2, 3, 2, 1, 0, 2, 1, 2};
  check({pictures, dtype::float32, [&](expression x) {
           auto& g = x.owner();
           const auto y = conv_transpose2d(x, g.variable("w", {2, 3, 3, 2}), up, 2, 1);
           return add_channel_bias(y, g.variable("b", {6}));
         }});
  for (const std::int64_t padding : {0, 1}) {
    const window pool{.height = 3,
                      .width = 2,
                      .stride_y = 2,
                      .stride_x = 2,
                      .pad_y = padding,
                      .pad_x = padding,
                      .ceil_mode = true};
    // With padding, the last column of windows would begin behind the image, so it does not count.
    // ONNX's shape inference before version 22 would count it, and onnxruntime would then refuse
    // the model.
    check({pictures, dtype::float32, [&](expression x) { return max_pool(x, pool); }});
    check({pictures, dtype::float32, [&](expression x) { return average_pool(x, pool); }});
  }
  // The stride is larger than the window: no column of windows reads the last column of the image.
  const window apart{.height = 3, .width = 1, .stride_y = 2, .stride_x = 3, .ceil_mode = true};
  check({pictures, dtype::float32, [&](expression x) { return average_pool(x, apart); }});
  // With this size, ceil_mode has no effect.
  const window even{.height = 2,
                    .width = 2,
                    .stride_y = 2,
                    .stride_x = 2,
                    .pad_y = 1,
                    .pad_x = 1,
                    .ceil_mode = true};
  check({pictures, dtype::float32, [&](expression x) { return max_pool(x, even); }});
  check({pictures, dtype::float32, [&](expression x) { return average_pool(x, even); }});
  for (const std::size_t axis : {1, 2, 3})
    check({pictures, dtype::float32, [&](expression x) { return reverse(x, axis); }});
}

// The window of windows_of_all_forms: a row is added, and a column is left out. Padding at the end
// replaces ceil_mode if the padding does not change the result. The import restores ceil_mode.
BOOST_AUTO_TEST_CASE(padding_in_place_of_ceil_mode) {
  using pads = std::vector<std::int64_t>;
  const window pool{.height = 3,
                    .width = 2,
                    .stride_y = 2,
                    .stride_x = 2,
                    .pad_y = 1,
                    .pad_x = 1,
                    .ceil_mode = true};
  for (const bool mean : {false, true}) {
    const exported from{pictures, dtype::float32, [&](expression x) {
                          return mean ? average_pool(x, pool) : max_pool(x, pool);
                        }};
    const auto proto = proto_of(from);
    for (const auto& attribute : proto.graph().node(0).attribute()) {
      if (attribute.name() == "ceil_mode")
        BOOST_TEST(attribute.i() == (mean ? 1 : 0));
      if (attribute.name() == "pads")
        BOOST_TEST(pads(attribute.ints().begin(), attribute.ints().end())
                     == (mean ? pads{1, 1, 1, 0} : pads{1, 1, 2, 0}),
                   boost::test_tools::per_element());
    }
    graph g;
    BOOST_TEST((imported(from, g).node().window == pool));
  }
}

// Batch normalization is exported in the form that is used in testing. After an import, its
// statistics are constants.
BOOST_AUTO_TEST_CASE(batch_normalization) {
  exported from{pictures, dtype::float32, [](expression x) {
                  auto& g = x.owner();
                  const auto state = parameter_kind::state;
                  return relu(
                    batch_norm_testing(x,
                                       {g.variable("n.weight", {2}), g.variable("n.bias", {2}),
                                        g.variable("n.running_mean", {2}, {}, state),
                                        g.variable("n.running_var", {2}, {}, state)}));
                }};
  auto weights = weights_of(from.g);
  weights[6] = 0.5F;
  weights[7] = 2;
  const auto model = reread(export_onnx(from.x, from.y, weights, "test").bytes);
  BOOST_TEST(model.proto().graph().node(0).op_type() == "BatchNormalization");
  BOOST_TEST(model.proto().graph().node_size() == 3);
  graph g;
  const auto x = g.placeholder("x", pictures);
  const auto y = import_onnx(model, g, {x})[0].x;
  BOOST_TEST(g.parameters().size() == 4u);
  const auto wanted = compute(from.x, from.y, weights);
  const auto found = compute(x, y, model.values(g.parameters()));
  BOOST_TEST_REQUIRE(found.size() == wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    BOOST_TEST(std::abs(found[i] - wanted[i]) <= 2e-6F * (1 + std::abs(wanted[i])));
}

BOOST_AUTO_TEST_CASE(sequences_of_vectors) {
  for (const auto how : {cell::rnn, cell::lstm, cell::gru})
    check(
      {sequences, dtype::float32, [&](expression x) { return recurrent_layer(x, "r", 3, how); }});
  check({sequences, dtype::float32, [](expression x) {
           const auto z = dense(x, x.owner().variable("w", {8, 6}));
           return lstm(z, x.owner().variable("r", {8, 2}));
         }});
  check({sequences, dtype::float32, [](expression x) { return causal_attention(x, x, x, 2); }});
  check({sequences, dtype::float32, [](expression x) {
           auto& g = x.owner();
           return layer_norm(x, g.variable("gain", {6}), g.variable("bias", {6}), 1e-3);
         }});
  check({sequences, dtype::float32,
         [](expression x) { return rms_norm(x, x.owner().variable("gain", {6}), 1e-3); }});
  check({sequences, dtype::float32, [](expression x) {
           const auto other = slice(x, 1, 1, 3);
           return multi_head_attention(x, other, other, 2, false);
         }});
  check({sequences, dtype::float32, [](expression x) { return normalize_rows(x); }});
  check({{shape::batch, 4}, dtype::int32, [](expression x) {
           return dense_layer(embedding(x.owner().variable("table", {7, 3}), x), "a", 2);
         }});
}

// All masks of causal attention with the same number of time steps are one, and nodes compute it.
BOOST_AUTO_TEST_CASE(masks_are_computed_once) {
  const exported from{{shape::batch, 64, 2}, dtype::float32, [](expression x) {
                        const auto y = causal_attention(x, x, x, 1);
                        return causal_attention(y, y, y, 1);
                      }};
  check(from);
  const auto proto = proto_of(from);
  BOOST_TEST(std::ranges::count(proto.graph().node(), "Trilu", &onnx::NodeProto::op_type) == 1);
  BOOST_TEST(proto.ByteSizeLong() < 64u * 64u);
}

// ONNX cannot compute an open extent beside an extent of 0.
BOOST_AUTO_TEST_CASE(tensors_without_elements) {
  check({{shape::batch, 2, 3}, dtype::float32, [](expression x) {
           return concat({flatten(slice(x, 1, 1, 1)), flatten(x)}, 1);
         }});
  check({{shape::batch, 4}, dtype::int32, [](expression x) {
           return concat(
             {to_float(slice(x, 1, 2, 2), {shape::batch, 0}), to_float(x, {shape::batch, 4})}, 1);
         }});
  check({{shape::batch, 4}, dtype::int32, [](expression x) {
           const auto rows = embedding(x.owner().variable("table", {7, 3}), x);
           const auto none = reshape(slice(rows, 1, 2, 2), {shape::batch, 0, 1, 3});
           return concat({flatten(none), flatten(rows)}, 1);
         }});
}

BOOST_AUTO_TEST_CASE(moves) {
  check({sequences, dtype::float32, [](expression x) {
           const auto a = slice(x, 1, 1, 3);
           const auto b = place(a, 1, 1, {shape::batch, 4, 6});
           return concat({transpose(x, {0, 2, 1}), transpose(b, {0, 2, 1})}, 2);
         }});
  check({sequences, dtype::float32, [](expression x) {
           const auto sums = sum_last(x);
           return broadcast_last(sums, {shape::batch, 4, 2});
         }});
  check({rows, dtype::float32, [](expression x) {
           const auto w = x.owner().variable("w", {3, 5});
           return x * broadcast_leading(sum_leading(w), {shape::batch, 5})
             + broadcast(sum(w), {shape::batch, 5});
         }});
  check({{shape::batch, 4}, dtype::int32, [](expression x) {
           return to_float(x, {shape::batch, 2, 2});
         }});
}

BOOST_AUTO_TEST_CASE(interpolation) {
  const blend_table table{{{0, 1}}, {{0, 0.75}, {1, 0.25}}, {{3, -0.5}, {1, 1}}, {}, {{2, 3}}};
  for (const std::size_t axis : {1, 2})
    check(
      {sequences, dtype::float32, [&](expression x) { return scale(blend(x, axis, table), 0.5); }});
}

// Batch normalization after a convolution is computed as a bias of the convolution. The exported
// file still has two layers.
BOOST_AUTO_TEST_CASE(batch_normalization_of_a_convolution) {
  const exported from{pictures, dtype::float32, [](expression x) {
                        auto& g = x.owner();
                        const auto state = parameter_kind::state;
                        return batch_norm_testing(conv2d(x, g.variable("w", {3, 2, 3, 3}), {3, 3}),
                                                  {g.variable("n.weight", {3}),
                                                   g.variable("n.bias", {3}),
                                                   g.variable("n.running_mean", {3}, {}, state),
                                                   g.variable("n.running_var", {3}, {}, state)});
                      }};
  auto weights = weights_of(from.g);
  std::fill(weights.end() - 3, weights.end(), 0.5F);
  const auto model = reread(export_onnx(from.x, from.y, weights, "test").bytes);
  BOOST_TEST_REQUIRE(model.proto().graph().node_size() == 3);
  BOOST_TEST(model.proto().graph().node(0).op_type() == "Conv");
  BOOST_TEST(model.proto().graph().node(1).op_type() == "BatchNormalization");
}

// Every operation needs a row in the table of the exporter: an ONNX operator, a function, or a
// reason why it cannot be exported.
BOOST_AUTO_TEST_CASE(every_operation_has_a_row) {
  for (std::size_t i = 0; i < operation_count; ++i) {
    const auto op = static_cast<operation>(i);
    const auto& row = onnx_export_row_of(op);
    BOOST_TEST((row.op == op), to_string(op) << " has no row in actors/model/onnx");
    const int ways =
      (row.same.empty() ? 0 : 1) + (row.write != nullptr ? 1 : 0) + (row.refusal.empty() ? 0 : 1);
    BOOST_TEST(ways == 1, to_string(op));
    // Operations of gradients cannot be exported, because models contain only forward operations.
    const bool is_derivative = to_string(op).ends_with("_gradient")
      && op != operation::conv2d_input_gradient && op != operation::stop_gradient;
    if (is_derivative)
      BOOST_TEST(!row.refusal.empty(), to_string(op));
    if (is_elementwise(op) && !is_derivative && op != operation::cast)
      BOOST_TEST(row.refusal.empty(), to_string(op));
  }
}

BOOST_AUTO_TEST_CASE(what_onnx_does_not_have) {
  const auto fail = [](const std::function<expression(expression)>& build) {
    const exported from{rows, dtype::float32, build};
    return error_of([&] { export_onnx(from.x, from.y, weights_of(from.g), "test"); });
  };
  BOOST_TEST(
    contains(fail([](expression x) { return relu_gradient(x, x); }),
             "ONNX export: \"relu_gradient_1\" (relu_gradient): ONNX has no operator for it"));
  BOOST_TEST(contains(fail([](expression x) {
                        return broadcast(sum(x), {shape::batch, 5});
                      }),
                      "a sum over the samples has no meaning in a model"));
  BOOST_TEST(contains(fail([](expression x) { return x + x.owner().placeholder("other", rows); }),
                      "\"other\" (placeholder): the output depends on this input"));
}

BOOST_AUTO_TEST_CASE(checked_by_onnx_itself) {
#ifndef TROUPE_ONNX_CHECKER
  skip("ONNX's checker is not there (libonnx); the other tests ran without it");
#endif
  const exported from{rows, dtype::float32,
                      [](expression x) { return dense_layer(x, "features", 3); }};
  const auto bytes = export_onnx(from.x, from.y, weights_of(from.g), "name of the model").bytes;
  onnx::ModelProto model;
  BOOST_REQUIRE(model.ParseFromString(bytes));
  BOOST_TEST(model.graph().name() == "name of the model");
  BOOST_TEST(model.graph().input(0).name() == "features");
  BOOST_TEST(model.graph().input(0).type().tensor_type().shape().dim(0).dim_param() == "batch");
  BOOST_TEST(model.graph().output(0).name() == "output");
}

BOOST_AUTO_TEST_CASE(type_of_tokens) {
  const exported from{{shape::batch, 4}, dtype::int32, [](expression x) {
                        return embedding(x.owner().variable("table", {5, 2}), x);
                      }};
  const auto type = [&](bool int64) {
    onnx_surroundings around;
    around.int64_tokens = int64;
    const auto bytes = export_onnx(from.x, from.y, weights_of(from.g), "test", around).bytes;
    BOOST_TEST(onnx_inputs(reread(bytes)).at(0).is_int64 == int64);
    onnx::ModelProto model;
    BOOST_REQUIRE(model.ParseFromString(bytes));
    return model.graph().input(0).type().tensor_type().elem_type();
  };
  BOOST_TEST(type(false) == onnx::TensorProto::INT32);
  BOOST_TEST(type(true) == onnx::TensorProto::INT64);
}

// The exported model includes the scaling of the data. It takes unscaled features and returns
// targets in their own units.
BOOST_AUTO_TEST_CASE(normalization_is_a_part_of_the_model) {
  const auto with = [](const shape& dims, const feature_scaling& how) {
    const exported from{dims, dtype::float32, [](expression x) { return scale(x, 2); }};
    onnx_surroundings around;
    around.features = how;
    around.metadata["feature_mean"] = "[]";
    const auto bytes = export_onnx(from.x, from.y, {}, "test", around).bytes;
#ifdef TROUPE_ONNX_CHECKER
    BOOST_TEST(inferred(bytes) == dims.extents(), boost::test_tools::per_element());
#endif
    onnx::ModelProto model;
    BOOST_REQUIRE(model.ParseFromString(bytes));
    BOOST_TEST(model.metadata_props(0).key() == "feature_mean");
    graph g;
    const auto x = g.placeholder("x", dims, dtype::float32);
    const auto y = import_onnx(reread(bytes), g, {x})[0].x;
    BOOST_TEST(g.parameters().size() == 0u); // the means are constants
    const auto found = compute(x, y, {});
    const auto wanted = compute(from.x, from.y, {}); // 2 x
    const auto width = dims.elements(1);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto k = i % width / (width / how.shift.size());
      const double expected = (wanted[i] / 2.0 - how.shift[k]) / how.scale[k] * 2;
      BOOST_TEST(std::abs(found[i] - expected) <= 1e-5);
    }
  };
  with(rows, {{1, 2, 3, 4, 5}, {1, 0.5, 2, 4, 8}}); // a mean and a factor per feature
  with(rows, {{0.5}, {0.25}});                      // one mean and one factor for all features
  const shape image{shape::batch, 2, 3, 3};
  with(image, {{0.1, 0.2}, {2, 3}}); // a mean and a factor per channel
  feature_scaling each;
  for (std::size_t i = 0; i < 18; ++i) {
    each.shift.push_back(0.1 * static_cast<double>(i));
    each.scale.push_back(1 + static_cast<double>(i));
  }
  with(image, each);
}

BOOST_AUTO_TEST_CASE(outputs_in_units_of_the_targets) {
  const exported from{rows, dtype::float32, [](expression x) { return scale(x, 2); }};
  onnx_surroundings around;
  around.targets = column_scaling{{}, {}, {10, 20, 30, 40, 50}, {1, 2, 3, 4, 5}};
  graph g;
  const auto x = g.placeholder("x", rows, dtype::float32);
  const auto bytes = export_onnx(from.x, from.y, {}, "test", around).bytes;
  const auto y = import_onnx(reread(bytes), g, {x})[0].x;
  const auto found = compute(x, y, {});
  const auto wanted = compute(from.x, from.y, {});
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto k = static_cast<float>(i % 5 + 1);
    BOOST_TEST(std::abs(found[i] - (wanted[i] * k + 10 * k)) <= 1e-5F);
  }
}

BOOST_AUTO_TEST_SUITE_END()
