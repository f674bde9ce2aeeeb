// What PyTorch's default exporter writes besides a computation: weights in other files, marks on
// nodes, and shapes that merge the batch with other dimensions.

#include "actors/model/model_source.hpp"
#include "kernels/devices/graph_session.hpp"
#include "kernels/graph/gradients.hpp"
#include "kernels/graph/operations.hpp"
#include "tests/actors/model/onnx/small_model.hpp"
#include "tests/support/temporary_directory.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

BOOST_AUTO_TEST_SUITE(onnx_exporter)

using namespace troupe;
using namespace troupe::test;

namespace {

void write(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream{path, std::ios::binary} << bytes;
}

/// A model whose weights w (4, 2) are in another file beside it.
struct apart {
  temporary_directory folder;
  small_model m;

  apart() {
    m.weight("w", {4, 2}, 0);
    m.node("MatMul", {"x", "w"}, "y");
    std::filesystem::create_directory(folder / "model");
    std::string bytes(32, '\0');
    bytes[3] = 0x40; // 2.0 as the first element
    write(folder / "model/weights", "----" + bytes);
    write(folder / "secret", "----" + bytes);
  }

  void say(const std::string& key, const std::string& value) {
    auto& w = *m.proto.mutable_graph()->mutable_initializer(0);
    w.set_data_location(onnx::TensorProto::EXTERNAL);
    for (auto& entry : *w.mutable_external_data())
      if (entry.key() == key) {
        entry.set_value(value);
        return;
      }
    auto& entry = *w.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  }

  onnx_model read() {
    write(folder / "model/model.onnx", m.proto.SerializeAsString());
    return onnx_model::read(folder / "model/model.onnx");
  }

  std::string error() {
    return error_of([&] { read(); });
  }
};

constexpr auto origin = "pkg.torch.onnx.fx_node";

} // namespace

BOOST_AUTO_TEST_CASE(weights_beside_the_model) {
  apart x;
  x.say("location", "weights");
  x.say("offset", "4");
  const auto model = x.read();
  graph g;
  import_onnx(model, g, {g.placeholder("x", {shape::batch, 4})});
  const auto values = model.values(g.parameters());
  BOOST_TEST_REQUIRE(values.size() == 8u);
  BOOST_TEST(values[0] == 2.0F);
  BOOST_TEST(values[1] == 0.0F);
  // If the folder of the model is unknown, the file with the weights cannot be found.
  BOOST_TEST(contains(x.m.error(), "tensor \"w\" is stored in another file"));
  x.say("length", "32");
  BOOST_TEST(x.error() == "(no error)");
}

BOOST_AUTO_TEST_CASE(other_files_are_bounded) {
  apart x;
  x.say("offset", "4");
  std::filesystem::create_symlink(x.folder / "secret", x.folder / "model/link");
  const auto inside = (x.folder / "model/weights").string();
  for (const auto& outside :
       {std::string{"../secret"}, std::string{"a/../../secret"}, (x.folder / "secret").string(),
        inside, std::string{"link"}, std::string{""}, std::string{"."}, std::string{".."}}) {
    x.say("location", outside);
    BOOST_TEST(contains(x.error(), "tensor \"w\" is stored in \"" + outside + "\", outside"),
               outside << ": " << x.error());
  }
  x.say("location", "missing");
  BOOST_TEST(
    contains(x.error(), "tensor \"w\" is stored in \"missing\", and there is no such file"));
  x.say("location", "weights");
  x.say("offset", "5");
  BOOST_TEST(
    contains(x.error(), "tensor \"w\" ends at byte 5 + 32 of weights, which has 36 bytes"));
  x.say("offset", "18446744073709551615");
  BOOST_TEST(contains(x.error(), "which has 36 bytes"));
  x.say("offset", "-1");
  BOOST_TEST(contains(x.error(), "tensor \"w\" has \"offset\" \"-1\"; expected a number of bytes"));
  x.say("offset", "0");
  x.say("length", "36");
  BOOST_TEST(contains(x.error(), "tensor \"w\" needs 32 bytes, but \"length\" is 36"));
  x.say("length", "32");
  auto& again = *x.m.proto.mutable_graph()->add_initializer();
  again = x.m.proto.graph().initializer(0);
  again.set_name("v");
  BOOST_TEST(contains(x.error(), "tensor \"v\" shares bytes of weights with other tensors"));
  for (auto& entry : *again.mutable_external_data())
    if (entry.key() == "location")
      entry.set_value("./weights");
  BOOST_TEST(contains(x.error(), "tensor \"v\" shares bytes of ./weights with other tensors"));
}

BOOST_AUTO_TEST_CASE(weights_that_are_no_numbers) {
  temporary_directory folder;
  small_model m;
  m.weight("w", {4, 2}, 8);
  m.node("MatMul", {"x", "w"}, "y");
  m.proto.mutable_graph()->mutable_initializer(0)->set_float_data(
    3, std::numeric_limits<float>::quiet_NaN());
  write(folder / "model.onnx", m.proto.SerializeAsString());
  proto::Job job;
  job.mutable_model()->set_onnx((folder / "model.onnx").string());
  BOOST_TEST(contains(error_of([&] { embed_onnx(job); }),
                      "model.onnx: tensor \"w\" has NaN at element 3; expected finite weights"));
}

// A model from `troupe export` contains the scaling of the data. If it is exported again, the
// description of this scaling is kept.
BOOST_AUTO_TEST_CASE(scaling_in_the_model) {
  temporary_directory folder;
  small_model m;
  m.weight("w", {4, 2}, 8);
  m.node("MatMul", {"x", "w"}, "y");
  for (const auto* key : {"feature_mean", "features", "target_deviation"}) {
    auto& entry = *m.proto.add_metadata_props();
    entry.set_key(key);
    entry.set_value("[1]");
  }
  write(folder / "model.onnx", m.proto.SerializeAsString());
  proto::Model model;
  BOOST_TEST(scaling_of_onnx(model).empty());
  model.set_onnx((folder / "model.onnx").string());
  const std::map<std::string, std::string> expected{{"feature_mean", "[1]"},
                                                    {"target_deviation", "[1]"}};
  BOOST_TEST((scaling_of_onnx(model) == expected));
}

BOOST_AUTO_TEST_CASE(merged_parameters) {
  const auto model = [](const std::string& second) {
    small_model m;
    m.weight("w", {4, 4}, 16);
    mark(m.node("MatMul", {"x", "w"}, "a"), origin,
         "linear(args = (%x, %p_first_weight, %p_bias))");
    mark(m.node("MatMul", {"a", "w"}, "y"), origin, "linear(args = (%a, %p_" + second + "))");
    return m;
  };
  BOOST_TEST(model("first_weight").error() == "(no error)");
  for (const auto type : real_types) {
    auto m = model("first_weight_2");
    m.convert_weights(type);
    BOOST_TEST(
      contains(m.error(),
               "the exporter merged different parameters with equal values into the tensor "
               "\"w\", which node \"the a\" (MatMul) and node \"the y\" (MatMul) read, so "
               "that they cannot be trained apart; export with optimize=False"),
      type);
  }
}

// tf2onnx merges the biases of two new layers, if they are equal. A layer that is used twice has
// the same weight both times.
BOOST_AUTO_TEST_CASE(merged_biases) {
  const auto model = [](const std::string& second_weight, float last) {
    small_model m;
    for (const auto* name : {"w", "other"})
      m.weight(name, {4, 4}, 16);
    m.weight("b", {4}, 4);
    m.proto.mutable_graph()->mutable_initializer(2)->set_float_data(3, last);
    m.node("MatMul", {"x", "w"}, "a");
    m.node("Add", {"a", "b"}, "first");
    m.node("Transpose", {second_weight}, "turned");
    m.node("MatMul", {"first", "turned"}, "c");
    m.node("Add", {"b", "c"}, "y");
    return m;
  };
  BOOST_TEST(model("w", 1).error() == "(no error)");
  BOOST_TEST(model("other", 0.5F).error() == "(no error)");
  auto merged = model("other", 1);
  BOOST_TEST(contains(merged.error(),
                      "the exporter probably merged different parameters with equal values into "
                      "the tensor \"b\", which node \"the first\" (Add) and node \"the y\" (Add) "
                      "read, so that they cannot be trained apart; set these parameters to random "
                      "values before the export (Keras; "));
  merged.proto.set_producer_name("troupe");
  BOOST_TEST(merged.error() == "(no error)");
  small_model gemm;
  for (const auto* name : {"w", "other"})
    gemm.weight(name, {4, 4}, 16);
  gemm.weight("b", {4}, 4);
  gemm.node("Gemm", {"x", "w", "b"}, "a");
  gemm.node("Gemm", {"a", "other", "b"}, "y");
  BOOST_TEST(contains(gemm.error(), "into the tensor \"b\""));
  gemm.proto.mutable_graph()->mutable_node(1)->set_input(1, "w");
  BOOST_TEST(gemm.error() == "(no error)");
}

// A normalization that is used twice comes after the same weight, or before the same weight.
BOOST_AUTO_TEST_CASE(merged_scales) {
  const auto model = [](const std::string& second, const std::string& third) {
    small_model m;
    m.proto.mutable_opset_import(0)->set_version(17);
    for (const auto* name : {"w", "w 2", "w 3"})
      m.weight(name, {4, 4}, 16);
    m.weight("scale", {4}, 4);
    m.node("MatMul", {"x", "w"}, "a");
    m.node("LayerNormalization", {"a", "scale"}, "b");
    m.node("MatMul", {"b", second}, "c");
    m.node("LayerNormalization", {"c", "scale"}, "d");
    m.node("MatMul", {"d", third}, "y");
    return m;
  };
  BOOST_TEST(contains(model("w 2", "w 3").error(), "into the tensor \"scale\""));
  BOOST_TEST(model("w", "w 3").error() == "(no error)");
  BOOST_TEST(model("w 2", "w 2").error() == "(no error)");
  // PyTorch's older exporter, outside of training mode, copies and moves merged parameters.
  for (const auto* op : {"Identity", "Transpose"}) {
    auto copied = model("w 2", "w 3");
    copied.proto.mutable_graph()->mutable_node(3)->set_input(1, "scale of d");
    auto& nodes = *copied.proto.mutable_graph()->mutable_node();
    copied.node(op, {"scale"}, "scale of d");
    std::rotate(nodes.begin(), nodes.end() - 1, nodes.end());
    BOOST_TEST(contains(copied.error(), "into the tensor \"scale\""), op);
  }
}

namespace {

/// Makes a sequence of two times two features from the input, with the time first.
void sequence_in_time(small_model& m, const std::string& name) {
  m.reshape("x", {0, 2, 2}, "sequence");
  auto& order = *m.node("Transpose", {"sequence"}, name).add_attribute();
  order.set_name("perm");
  order.set_type(onnx::AttributeProto::INTS);
  for (const int axis : {1, 0, 2})
    order.add_ints(axis);
}

} // namespace

// PyTorch's LSTM has two biases, which it adds. If both are 0, they may be merged.
BOOST_AUTO_TEST_CASE(merged_biases_of_a_recurrent_layer) {
  const auto error_with = [](const std::string& second) {
    small_model m;
    m.weight("b", {8}, 8);
    m.weight("c", {8}, 8);
    auto& joined = m.node("Concat", {"b", second}, "both");
    integer(joined, "axis", 0);
    m.reshape("both", {1, 16}, "bias");
    sequence_in_time(m, "in time");
    m.weight("w", {1, 8, 2}, 16);
    m.weight("r", {1, 8, 2}, 16);
    integer(m.node("LSTM", {"in time", "w", "r", "bias"}, "h"), "hidden_size", 2);
    m.reshape("h", {2, -1, 2}, "y");
    return error_of([&] { m.parsed(); });
  };
  BOOST_TEST(error_with("c") == "(no error)");
  BOOST_TEST(contains(error_with("b"),
                      "into the tensor \"b\", which node \"the h\" (LSTM) reads as "
                      "both of its biases"));
}

// The exporter's optimizations compute the transposed weight of an output layer in advance, even if
// the weight is also that of an embedding.
BOOST_AUTO_TEST_CASE(copied_weights) {
  const auto error_with = [](float changed, bool constant, const std::string& name = "val_2") {
    small_model m;
    m.weight("w", {4, 2}, 8);
    m.weight(name, {2, 4}, 8);
    m.node("MatMul", {"x", "w"}, "a");
    m.node("MatMul", {"a", name}, "y");
    auto& graph = *m.proto.mutable_graph();
    for (int i = 0; i < 4 && !constant; ++i)
      for (int j = 0; j < 2; ++j) {
        const auto value = static_cast<float>(10 * i + j);
        graph.mutable_initializer(0)->set_float_data(2 * i + j, value);
        graph.mutable_initializer(1)->set_float_data(4 * j + i, i == 3 && j == 1 ? changed : value);
      }
    return error_of([&] { m.parsed(); });
  };
  BOOST_TEST(contains(error_with(31, false),
                      "the tensors \"val_2\" and \"w\" are probably one weight "
                      "that the exporter has copied and transposed"));
  BOOST_TEST(error_with(30, false) == "(no error)");
  BOOST_TEST(error_with(31, true) == "(no error)");
  // Two parameters of the model itself, such as those of an autoencoder.
  BOOST_TEST(error_with(31, false, "decoder") == "(no error)");
}

// A mask of attention is added to the scores.
BOOST_AUTO_TEST_CASE(tensors_with_infinity) {
  small_model m;
  m.weight("mask", {4}, 4);
  m.proto.mutable_graph()->mutable_initializer(0)->set_float_data(
    2, -std::numeric_limits<float>::infinity());
  m.node("Add", {"x", "mask"}, "a");
  m.node("Softmax", {"a"}, "b");
  m.weight("w", {4, 4}, 16);
  m.node("MatMul", {"b", "w"}, "y");
  const auto model = m.parsed();
  BOOST_TEST_REQUIRE(model.weights().size() == 1U);
  BOOST_TEST(model.weights()[0].name == "w");
  model.require_finite();
  m.proto.mutable_graph()->mutable_initializer(1)->set_float_data(
    3, std::numeric_limits<float>::infinity());
  BOOST_TEST(contains(error_of([&] { m.parsed().require_finite(); }),
                      "tensor \"w\" has infinity at element 3"));
}

// tf2onnx writes the PReLU of Keras as relu(x) + slope * relu(-x).
BOOST_AUTO_TEST_CASE(slopes_of_keras) {
  small_model m;
  m.weight("slope:0", {4}, 4);
  m.weight("buffer", {4}, 4);
  m.weight("factor", {4}, 4);
  m.node("Relu", {"x"}, "a");
  m.node("Neg", {"x"}, "b");
  m.node("Relu", {"b"}, "c");
  m.node("Mul", {"c", "slope:0"}, "g");
  m.node("Mul", {"c", "buffer"}, "h");
  m.node("Add", {"g", "h"}, "d");
  m.node("Mul", {"a", "factor"}, "e");
  m.node("Add", {"e", "d"}, "y");
  const auto model = m.parsed();
  for (const auto& x : model.weights())
    BOOST_TEST(x.stays.empty() == (x.name == "slope:0"), x.name);
}

// The bias of a new LSTM in Keras is 1 for the forget gate, otherwise 0.
BOOST_AUTO_TEST_CASE(merged_biases_of_recurrent_layers) {
  small_model m;
  m.weight("b", {1, 16}, 16);
  m.proto.mutable_graph()->mutable_initializer(0)->set_float_data(3, 0);
  std::string last = "in time";
  sequence_in_time(m, last);
  for (const std::string i : {"", " 2"}) {
    m.weight("w" + i, {1, 8, 2}, 16);
    m.weight("r" + i, {1, 8, 2}, 16);
    integer(m.node("LSTM", {last, "w" + i, "r" + i, "b"}, "h" + i), "hidden_size", 2);
    last = i.empty() ? "between" : "y";
    m.reshape("h" + i, {2, -1, 2}, last);
  }
  BOOST_TEST(contains(error_of([&] { m.parsed(); }), "into the tensor \"b\""));
  for (auto& node : *m.proto.mutable_graph()->mutable_node())
    if (node.op_type() == "LSTM")
      node.set_input(1, "w");
  BOOST_TEST(error_of([&] { m.parsed(); }) == "(no error)");
}

// PyTorch writes group normalization as InstanceNormalization with a scale of 1 and a shift of 0.
// Two normalizations with the same number of groups share these two tensors, which must not be
// trained.
BOOST_AUTO_TEST_CASE(two_group_normalizations) {
  small_model m;
  m.weight("one", {2}, 2);
  m.weight("zero", {2}, 2);
  m.weight("scale", {4, 1, 1}, 4);
  m.weight("scale 2", {4, 1, 1}, 4);
  std::string last = "x";
  for (const std::string suffix : {"", " 2"}) {
    const auto from = "aten.group_norm.default(args = (%x, 2, %p_norm" + suffix + "_weight))";
    mark(m.node("InstanceNormalization", {last, "one", "zero"}, "n" + suffix), origin, from);
    last = suffix.empty() ? "between" : "y";
    mark(m.node("Mul", {"n" + suffix, "scale" + suffix}, last), origin, from);
  }
  BOOST_TEST(error_of([&] { m.parsed(); }) == "(no error)");
  for (const auto type : real_types) {
    auto other = m;
    other.convert_weights(type);
    const auto model = other.parsed();
    for (const auto& x : model.weights())
      BOOST_TEST(x.stays.empty() == x.name.starts_with("scale"), x.name << " of type " << type);
  }
  m.proto.mutable_graph()->mutable_node(3)->set_input(1, "scale");
  BOOST_TEST(contains(error_of([&] { m.parsed(); }),
                      "the exporter merged different parameters with equal values into the tensor "
                      "\"scale\""));
}

BOOST_AUTO_TEST_CASE(folded_batch_normalization) {
  const auto model = [](const std::string& what) {
    small_model m;
    m.weight("w", {4, 4}, 16);
    auto& node = m.node("MatMul", {"x", "w"}, "y");
    mark(node, origin, what);
    mark(node, "pkg.onnxscript.rewriter.rule_name", "FuseBatchNormIntoGemm");
    return m;
  };
  BOOST_TEST(contains(model("aten._native_batch_norm_legit_functional.default").error(),
                      "node \"the y\" (MatMul): the exporter folded batch normalization into this "
                      "node, so that it cannot be trained; export with optimize=False"));
  // A model that was exported for testing has constant statistics.
  BOOST_TEST(model("aten._native_batch_norm_legit_no_training.default").error() == "(no error)");
}

// A reshape may merge the batch with another dimension. A later reshape must divide them again, so
// that each sample gets its own elements back.
BOOST_AUTO_TEST_CASE(batches_merged_with_other_dimensions) {
  const auto model = [](const std::vector<std::vector<std::int64_t>>& shapes) {
    small_model m;
    std::string last = "x";
    for (const auto& shape : shapes) {
      const auto next = "r" + std::to_string(m.proto.graph().initializer_size());
      auto& wanted = *m.proto.mutable_graph()->add_initializer();
      wanted.set_name("shape of " + next);
      wanted.set_data_type(onnx::TensorProto::INT64);
      wanted.add_dims(static_cast<std::int64_t>(shape.size()));
      wanted.mutable_int64_data()->Add(shape.begin(), shape.end());
      m.node("Reshape", {last, wanted.name()}, next);
      last = next;
    }
    m.node("Relu", {last}, "y");
    return m;
  };
  BOOST_TEST(model({{-1, 2}, {-1, 4}}).error() == "(no error)");
  BOOST_TEST(model({{-1, 2}, {-1, 2, 2}}).error() == "(no error)");
  // The output has the shape (2 batch, 2): the merged dimension is never divided again.
  BOOST_TEST(contains(model({{-1, 2}}).error(), "output \"y\" merges the batch with another"));
  BOOST_TEST(contains(model({{-1, 8}}).error(), "cannot get the shape (-1, 8)"));
  BOOST_TEST(contains(model({{2, -1}}).error(), "cannot get the shape (2, -1)"));
  // The batch is where the shape is open, and not where it is 1: softmax would mix samples.
  auto mixed = model({{1, -1, 4}});
  mixed.proto.mutable_graph()->mutable_node(1)->set_op_type("Softmax");
  integer(*mixed.proto.mutable_graph()->mutable_node(1), "axis", 1);
  BOOST_TEST(contains(mixed.error(), "axis 1 is the batch"));
  auto softmax = model({{-1, 2}});
  auto& node = *softmax.proto.mutable_graph()->mutable_node(1);
  node.set_op_type("Softmax");
  integer(node, "axis", 0);
  BOOST_TEST(contains(softmax.error(), "axis 0 is merged with the batch"));
  node.set_op_type("Hardmax");
  BOOST_TEST(contains(softmax.error(), "does not have this operator"));
  node.set_op_type("Flatten");
  BOOST_TEST(contains(softmax.error(), "node \"the y\" (Flatten): input 0 merges the batch"));
}

// (batch, 2) and (2, batch) are both merged to (2 batch), but with the samples in different orders.
BOOST_AUTO_TEST_CASE(merges_that_differ) {
  const auto error = [](const std::string& second, const std::vector<std::int64_t>& dims) {
    small_model m;
    m.reshape("x", {0, 2, 2}, "apart");
    auto& perm = *m.node("Transpose", {"apart"}, "turned").add_attribute();
    perm.set_name("perm");
    perm.set_type(onnx::AttributeProto::INTS);
    for (const int axis : {1, 0, 2})
      perm.add_ints(axis);
    m.reshape("apart", {-1, 2}, "a");
    m.reshape("turned", {-1, 2}, "b");
    m.node("Add", {"a", second}, "sum");
    m.reshape("sum", dims, "y");
    return m.error();
  };
  BOOST_TEST(error("a", {-1, 4}) == "(no error)");
  BOOST_TEST(contains(error("b", {2, -1, 4}),
                      "node \"the sum\" (Add): inputs 0 and 1 merge the batch with other "
                      "dimensions in different ways"));
}

// In ONNX, (batch, 1, 1, 2) + (2 batch, 1, 2) is broadcast to batch x 2 batch rows. Each sample
// gets its own rows only if the batch is 1.
BOOST_AUTO_TEST_CASE(a_batch_beside_a_merged_one) {
  const auto model = [](std::int64_t batch) {
    small_model m;
    const bool open = batch == 0;
    if (!open)
      m.proto.mutable_graph()
        ->mutable_input(0)
        ->mutable_type()
        ->mutable_tensor_type()
        ->mutable_shape()
        ->mutable_dim(0)
        ->set_dim_value(batch);
    m.weight("w", {4, 2}, 8);
    m.node("MatMul", {"x", "w"}, "half");
    m.reshape("x", {open ? -1 : 2 * batch, 1, 2}, "merged");
    m.reshape("half", {0, 1, 1, 2}, "apart");
    m.node("Add", {"merged", "apart"}, "sum");
    m.reshape("sum", {open ? -1 : batch, 4}, "y");
    return m.error();
  };
  BOOST_TEST(model(1) == "(no error)");
  for (const std::int64_t batch : {0, 3})
    BOOST_TEST(contains(model(batch),
                        "node \"the sum\" (Add): input 0 merges the batch with another dimension, "
                        "and input 1 does not"));
}

namespace {

/// The gradients of the sum of y with respect to the weights, all of which are 1, for these inputs.
template <class T>
std::vector<double> slopes_of(const small_model& m, dtype type, const std::vector<T>& features) {
  const auto model = m.parsed();
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 4}, type);
  const auto y = import_onnx(model, g, {x}, true).at(0).x;
  std::vector<expression> weights;
  for (std::uint32_t id = 0; id < g.nodes().size(); ++id)
    if (g.at(id).op == operation::variable)
      weights.emplace_back(g, id);
  const auto slopes = gradients(sum(y), weights);
  graph_session<double> s{g};
  std::ranges::copy(model.values(g.parameters()), s.variables().begin());
  const std::vector<session_feed<double>> feeds{session_feed<double>{x, std::span{features}}};
  std::vector<double> result;
  for (const auto& found : s.run(feeds, slopes))
    result.insert(result.end(), found.begin(), found.end());
  return result;
}

std::string stays(const onnx_model& model) {
  std::string result;
  for (const auto& x : model.weights())
    result += x.name + ": " + (x.stays.empty() ? "trained" : x.stays) + "\n";
  return result;
}

} // namespace

// x.detach() is an Identity that passes no gradient. Tensors that only it reaches stay.
BOOST_AUTO_TEST_CASE(detached_values) {
  const std::vector<double> features{1, 2, 3, 4};
  for (const bool detached : {true, false}) {
    small_model m;
    m.weight("before.weight", {4}, 4);
    m.weight("w.weight", {4}, 4);
    m.node("Mul", {"x", "before.weight"}, "a");
    m.node("Mul", {"a", "w.weight"}, "b");
    auto& identity = m.node("Identity", {"a"}, "c");
    if (detached)
      mark(identity, origin, "%detach : [target=torch.ops.aten.detach.default](args = (%a,))");
    m.node("Mul", {"b", "c"}, "y");
    // y = x^2 before^2 w. If c is a constant, its value is x, and y = x^2 before w.
    const auto expected = detached ? std::vector<double>{1, 4, 9, 16, 1, 4, 9, 16}
                                   : std::vector<double>{2, 8, 18, 32, 1, 4, 9, 16};
    BOOST_TEST(slopes_of(m, dtype::float32, features) == expected,
               boost::test_tools::per_element());
  }
  small_model m;
  m.weight("before.weight", {4}, 4);
  m.weight("w.weight", {4}, 4);
  m.node("Mul", {"x", "before.weight"}, "a");
  mark(m.node("Identity", {"a"}, "b"), origin, "%d : aten.detach.default](args = (%a,))");
  m.node("Mul", {"b", "w.weight"}, "y");
  const auto model = m.parsed();
  const std::string expected = "before.weight: x.detach() in the PyTorch model stops its gradient\n"
                               "w.weight: trained\n";
  BOOST_TEST(stays(model) == expected);
  const auto bytes = model.structure();
  const auto structure = onnx_model::parse_structure(std::as_bytes(std::span{bytes}), "structure");
  BOOST_TEST(stays(structure) == expected);
  BOOST_TEST(structure.structure() == bytes);
}

// In PyTorch, the row padding_idx of an embedding gets no gradient.
BOOST_AUTO_TEST_CASE(rows_for_padding) {
  const std::vector<std::int32_t> tokens{0, 2, 0, 1};
  const auto slopes = [&](const std::string& arguments) {
    small_model m;
    m.proto.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
      onnx::TensorProto::INT64);
    m.weight("table", {3, 2}, 6);
    mark(m.node("Gather", {"table", "x"}, "y"), origin,
         "%e : aten.embedding.default](args = (" + arguments + "), kwargs = {})");
    const auto model = m.parsed();
    BOOST_TEST(differs_in_training(model) == (arguments != "%p_table, %x"));
    return slopes_of(m, dtype::int32, tokens);
  };
  BOOST_TEST(slopes("%p_table, %x") == std::vector<double>({2, 2, 1, 1, 1, 1}),
             boost::test_tools::per_element());
  BOOST_TEST(slopes("%p_table, %x, 0") == std::vector<double>({0, 0, 1, 1, 1, 1}),
             boost::test_tools::per_element());
  BOOST_TEST(slopes("%p_table, %x, 2, False") == std::vector<double>({2, 2, 1, 1, 0, 0}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
