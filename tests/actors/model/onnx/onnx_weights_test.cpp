// Tests which tensors of an ONNX model are trained.

#include "actors/model/job_file.hpp"
#include "actors/model/model_builder.hpp"
#include "actors/model/model_source.hpp"
#include "actors/model/token_input.hpp"
#include "kernels/data/arrays.hpp"
#include "kernels/devices/graph_session.hpp"
#include "kernels/graph/gradients.hpp"
#include "kernels/graph/operations.hpp"
#include "tests/actors/model/onnx/small_model.hpp"
#include "tests/support/temporary_directory.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <vector>

BOOST_AUTO_TEST_SUITE(onnx_weights)

using namespace troupe;
using namespace troupe::test;

namespace {

/// Names of the trained tensors, each followed by a space.
std::string trained(const onnx_model& model) {
  std::string result;
  for (const auto& x : model.weights())
    result += x.stays.empty() ? x.name + " " : "";
  return result;
}

std::string frozen(const onnx_model& model) {
  std::string result;
  for (const auto& x : model.weights())
    result += x.stays.empty() ? "" : x.name + " ";
  return result;
}

/// Adds the mark with which PyTorch's exporter says what a tensor is. It is in field 4 of a
/// value_info, which older schemas of ONNX do not have.
void say(small_model& m, const std::string& name, const std::string& kind) {
  onnx::StringStringEntryProto entry;
  entry.set_key("pkg.torch.export.graph_signature.InputSpec.kind");
  entry.set_value(kind);
  onnx::ValueInfoProto named;
  named.set_name(name);
  constexpr char tag = 4 << 3 | 2;
  const auto value = entry.SerializeAsString();
  const auto bytes = named.SerializeAsString() + tag + static_cast<char>(value.size()) + value;
  auto& info = *m.proto.mutable_graph()->add_value_info();
  BOOST_TEST_REQUIRE(info.ParseFromString(bytes));
}

/// A network in the form of PyTorch's older exporter. In PyTorch, its position table, scale and
/// mask are buffers (untrained tensors), but this exporter does not mark them.
small_model positions() {
  small_model m;
  m.weight("mean", {4}, 4);
  m.weight("pe", {1, 8}, 8);
  m.weight("keep", {8}, 8);
  m.weight("first.weight", {8, 4}, 32);
  m.weight("first.bias", {8}, 8);
  m.weight("onnx::MatMul_12", {8, 2}, 16);
  m.weight("final_offset", {2}, 2);
  m.node("Sub", {"x", "mean"}, "centred");
  integer(m.node("Gemm", {"centred", "first.weight", "first.bias"}, "hidden"), "transB", 1);
  m.node("Relu", {"hidden"}, "rectified");
  m.node("Add", {"rectified", "pe"}, "placed");
  m.node("Mul", {"placed", "keep"}, "kept");
  m.node("MatMul", {"kept", "onnx::MatMul_12"}, "scores");
  m.node("Add", {"final_offset", "scores"}, "y");
  return m;
}

} // namespace

BOOST_AUTO_TEST_CASE(weights_of_half_precision) {
  for (const bool brain : {false, true}) {
    small_model m;
    auto& w = *m.proto.mutable_graph()->add_initializer();
    w.set_name("w");
    w.set_data_type(brain ? onnx::TensorProto::BFLOAT16 : onnx::TensorProto::FLOAT16);
    w.add_dims(4);
    w.add_dims(1);
    // The bits of 1, -2.5, the smallest positive number, and 0.
    const auto bits =
      brain ? std::array{0x3f80, 0xc020, 0x0001, 0} : std::array{0x3c00, 0xc100, 0x0001, 0};
    for (const int x : bits)
      w.add_int32_data(x);
    m.node("MatMul", {"x", "w"}, "y");
    const auto model = m.parsed();
    BOOST_TEST(trained(model) == "w ");
    graph g;
    import_onnx(model, g, {g.placeholder("x", {shape::batch, 4})});
    const auto least = brain ? std::ldexp(1.0F, -133) : std::ldexp(1.0F, -24);
    BOOST_TEST(model.values(g.parameters()) == std::vector<float>({1, -2.5F, least, 0}),
               boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(weights_of_double_precision) {
  small_model m;
  auto& w = *m.proto.mutable_graph()->add_initializer();
  w.set_name("w");
  w.set_data_type(onnx::TensorProto::DOUBLE);
  w.add_dims(4);
  w.add_dims(1);
  for (const double x : {1.0, -2.5, 0.1, 0.0})
    w.add_double_data(x);
  m.node("MatMul", {"x", "w"}, "y");
  const auto model = m.parsed();
  BOOST_TEST(trained(model) == "w ");
  graph g;
  import_onnx(model, g, {g.placeholder("x", {shape::batch, 4})});
  BOOST_TEST(model.values(g.parameters()) == std::vector<float>({1, -2.5F, 0.1F, 0}),
             boost::test_tools::per_element());
}

// A product passes through an Identity node before its bias is added. tf2onnx writes
// one-dimensional convolutions of Keras in this form.
BOOST_AUTO_TEST_CASE(biases_of_moved_products) {
  small_model m;
  m.weight("w", {4, 4}, 16);
  m.weight("b", {1, 4}, 4);
  m.weight("c", {1, 4}, 4);
  m.node("MatMul", {"x", "w"}, "product");
  m.node("Identity", {"product"}, "moved");
  m.node("Add", {"moved", "b"}, "sum");
  m.node("Add", {"sum", "c"}, "y");
  BOOST_TEST(trained(m.parsed()) == "w b ");
  BOOST_TEST(frozen(m.parsed()) == "c ");
}

// tf2onnx writes the normalizations of Keras in this form.
BOOST_AUTO_TEST_CASE(scales_and_shifts_of_normalizations) {
  small_model m;
  m.weight("gamma", {1, 4}, 4);
  m.weight("beta", {1, 4}, 4);
  m.weight("places", {4}, 4);
  auto& mean = m.node("ReduceMean", {"x"}, "mean");
  auto& axes = *mean.add_attribute();
  axes.set_name("axes");
  axes.add_ints(1);
  m.node("Sub", {"x", "mean"}, "centred");
  m.node("Mul", {"centred", "centred"}, "square");
  m.node("Neg", {"mean"}, "less");
  *m.node("ReduceMean", {"square"}, "variance").add_attribute() = axes;
  m.node("Sqrt", {"variance"}, "deviation");
  m.node("Reciprocal", {"deviation"}, "inverse");
  m.node("Mul", {"inverse", "gamma"}, "factor");
  m.node("Mul", {"x", "factor"}, "scaled");
  m.node("Mul", {"less", "factor"}, "scaled mean");
  m.node("Add", {"scaled mean", "beta"}, "shift");
  m.node("Add", {"scaled", "shift"}, "normal");
  m.node("Add", {"normal", "places"}, "y");
  BOOST_TEST(trained(m.parsed()) == "gamma beta ");
  BOOST_TEST(frozen(m.parsed()) == "places ");
}

BOOST_AUTO_TEST_CASE(operands_of_products_and_their_biases) {
  const auto model = positions().parsed();
  BOOST_TEST(trained(model) == "first.weight first.bias onnx::MatMul_12 final_offset ");
  BOOST_TEST(frozen(model) == "mean pe keep ");
  graph g;
  import_onnx(model, g, {g.placeholder("x", {shape::batch, 4})});
  for (const auto& entry : g.parameters().entries())
    BOOST_TEST((entry.kind == parameter_kind::frozen)
                 == (entry.name == "mean" || entry.name == "pe" || entry.name == "keep"),
               entry.name);
}

BOOST_AUTO_TEST_CASE(names_of_weights) {
  for (const std::string name :
       {"norm.weight", "a.in_proj_bias", "ln/gamma.gamma", "beta", "net/BiasAdd/ReadVariableOp:0",
        "h.weight_g", "h.parametrizations.weight.original0"}) {
    small_model m;
    m.weight(name, {4}, 4);
    m.node("Mul", {"x", name}, "y");
    BOOST_TEST(trained(m.parsed()) == name + " ");
  }
  for (const std::string name :
       {"bias_net.mask", "weights.pe", "alpha", "gammas", "weight.original0"}) {
    small_model m;
    m.weight(name, {4}, 4);
    m.node("Mul", {"x", name}, "y");
    BOOST_TEST(frozen(m.parsed()) == name + " ");
  }
}

// Finds biases. A vector that is added to a product with a weight is a bias. A matrix is not, for
// example a mask for the scores of attention. A vector that is added to a product of two data
// tensors is not, either.
BOOST_AUTO_TEST_CASE(biases) {
  small_model m;
  m.weight("w", {4, 4}, 16);
  m.weight("table", {2, 4}, 8);
  m.weight("scale", {4}, 4);
  m.node("MatMul", {"x", "w"}, "a");
  m.node("Add", {"a", "table"}, "b");
  m.node("MatMul", {"b", "x"}, "c");
  m.node("Add", {"c", "scale"}, "y");
  BOOST_TEST(trained(m.parsed()) == "w ");
}

// A weight may be transposed, sliced, or concatenated with other weights. A tensor that is
// concatenated with data is not a weight.
BOOST_AUTO_TEST_CASE(weights_that_are_moved) {
  small_model m;
  m.weight("left", {4, 2}, 8);
  m.weight("right", {2, 4}, 8);
  m.weight("token", {1, 4}, 4);
  m.node("Transpose", {"right"}, "turned");
  integer(m.node("Concat", {"left", "turned"}, "both"), "axis", 1);
  integer(m.node("Concat", {"x", "token"}, "longer"), "axis", 0);
  m.node("MatMul", {"longer", "both"}, "y");
  BOOST_TEST(trained(m.parsed()) == "left right ");
  BOOST_TEST(frozen(m.parsed()) == "token ");
}

// Omitted inputs and omitted outputs have an empty name. An omitted input does not read an omitted
// output, although their names are equal.
BOOST_AUTO_TEST_CASE(inputs_that_are_left_out) {
  small_model m;
  m.weight("w", {6, 4}, 24);
  m.whole("begin", {1}, {0});
  m.whole("end", {1}, {4});
  m.whole("step", {1}, {1});
  m.node("Slice", {"w", "begin", "end", "", "step"}, "rows");
  auto& split = m.node("Split", {"x"}, "");
  integer(split, "axis", 1);
  split.add_output("half");
  m.node("MatMul", {"x", "rows"}, "y");
  BOOST_TEST(trained(m.parsed()) == "w ");
}

// A table is trained as an embedding if the data selects its rows. If its rows are read at fixed
// positions, its name decides.
BOOST_AUTO_TEST_CASE(tables) {
  for (const bool by_data : {true, false}) {
    small_model m;
    m.proto.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
      onnx::TensorProto::INT64);
    m.weight("codes", {9, 3}, 27);
    auto& places = *m.proto.mutable_graph()->add_initializer();
    places.set_name("places");
    places.set_data_type(onnx::TensorProto::INT64);
    places.add_dims(4);
    for (int i = 0; i < 4; ++i)
      places.add_int64_data(i);
    m.node("Gather", {"codes", by_data ? "x" : "places"}, "y");
    BOOST_TEST(trained(m.parsed()) == (by_data ? "codes " : ""));
  }
}

BOOST_AUTO_TEST_CASE(the_word_of_the_exporter_counts) {
  auto m = positions();
  say(m, "pe", "PARAMETER");
  say(m, "keep", "BUFFER");
  say(m, "first.bias", "PARAMETER");
  say(m, "final_offset", "CONSTANT_TENSOR");
  const auto model = m.parsed();
  BOOST_TEST(trained(model) == "pe first.weight first.bias onnx::MatMul_12 ");
  for (const auto& x : model.weights())
    if (x.name == "final_offset")
      BOOST_TEST(x.stays == "a CONSTANT_TENSOR in the ONNX file");
  // Processes that have only the structure of the model, without weights, train the same tensors.
  const auto bytes = model.structure();
  const auto structure = onnx_model::parse_structure(std::as_bytes(std::span{bytes}), "structure");
  BOOST_TEST(trained(structure) == trained(model));
  BOOST_TEST(structure.structure() == bytes);
  // A mark that does not change which tensors are trained is not part of the structure. So the hash
  // of the job stays the same.
  auto same = positions();
  say(same, "keep", "BUFFER");
  BOOST_TEST(same.parsed().structure() == positions().parsed().structure());
}

// A tensor without dimensions is usually a number of a formula. If PyTorch's exporter marks it, or
// names it, it is a parameter.
BOOST_AUTO_TEST_CASE(single_numbers) {
  const auto model_of = [](const std::string& producer, const std::string& mark) {
    small_model m;
    m.proto.set_producer_name(producer);
    m.weight("w", {4, 4}, 16);
    m.weight("logit_scale", {}, 1);
    m.weight("onnx::Mul_3", {}, 1);
    if (!mark.empty())
      say(m, "logit_scale", mark);
    m.node("MatMul", {"x", "w"}, "a");
    m.node("Mul", {"a", "onnx::Mul_3"}, "b");
    m.node("Mul", {"b", "logit_scale"}, "y");
    return m.parsed();
  };
  const auto marked = model_of("pytorch", "PARAMETER");
  BOOST_TEST(trained(marked) == "w logit_scale ");
  BOOST_TEST(frozen(marked) == "");
  BOOST_TEST(frozen(model_of("pytorch", "BUFFER")) == "logit_scale ");
  BOOST_TEST(frozen(model_of("pytorch", "CONSTANT_TENSOR")) == "");
  BOOST_TEST(frozen(model_of("pytorch", "")) == "logit_scale ");
  BOOST_TEST(frozen(model_of("troupe", "")) == "logit_scale ");
  BOOST_TEST(frozen(model_of("tf2onnx", "")) == "");
  BOOST_TEST(trained(model_of("tf2onnx", "")) == "w ");
  for (const auto& mark : {"PARAMETER", "BUFFER", "CONSTANT_TENSOR", ""}) {
    const auto model = model_of("pytorch", mark);
    const auto bytes = model.structure();
    const auto structure = onnx_model::parse_structure(std::as_bytes(std::span{bytes}), "s");
    BOOST_TEST(trained(structure) == trained(model));
    BOOST_TEST(frozen(structure) == frozen(model));
    BOOST_TEST(structure.structure() == bytes);
  }
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 4});
  const auto y = import_onnx(marked, g, {x}).at(0).x;
  const auto* entry = g.parameters().find("logit_scale");
  BOOST_TEST_REQUIRE(entry != nullptr);
  BOOST_TEST(entry->shape.rank() == 0u);
  // y = s (x w). The gradient with respect to s is the sum of x w.
  std::uint32_t id = 0;
  while (g.at(id).name != "logit_scale")
    ++id;
  const auto slope = gradients(sum(y), std::array{expression{g, id}});
  graph_session<double> s{g};
  std::ranges::copy(marked.values(g.parameters()), s.variables().begin());
  const std::vector<double> features{1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<session_feed<double>> feeds{session_feed<double>{x, std::span{features}}};
  BOOST_TEST(s.run(feeds, slope)[0].at(0) == 4 * 36);
}

BOOST_AUTO_TEST_CASE(jobs_have_the_last_word) {
  const temporary_directory folder;
  const auto bytes = positions().proto.SerializeAsString();
  std::ofstream{folder / "model.onnx", std::ios::binary} << bytes;
  const auto kinds = [&](const std::string& choice) {
    proto::Job job;
    apply_override(job,
                   "model={onnx: '" + (folder / "model.onnx").string() + "' "
                     + "loss: MEAN_SQUARED_ERROR " + choice + "}");
    embed_onnx(job);
    const auto model =
      build_model(job.model(), {.dims = {4}, .labels = label_kind::targets, .label_width = 2});
    std::string result;
    for (const auto& entry : model.graph->parameters().entries())
      result += to_string(entry.kind).substr(0, 1);
    return result;
  };
  // Each letter stands for a tensor: mean, pe, keep, first.weight, first.bias, onnx::MatMul_12,
  // final_offset. f: frozen, t: trained.
  BOOST_TEST(kinds("") == "ffftttt");
  BOOST_TEST(kinds("train: 'pe'") == "ftftttt");
  BOOST_TEST(kinds("freeze: 'first.*' freeze: 'pe'") == "ffffftt");
  BOOST_TEST(kinds("freeze: '*' train: 'onnx::*'") == "ffffftf");
}

// Messages about the outputs of an ONNX model speak about the program that exported it, not about
// layers.
BOOST_AUTO_TEST_CASE(outputs_and_labels) {
  const auto error = [](const std::vector<std::int64_t>& output, proto::Loss loss,
                        const record_shape& data) {
    small_model m;
    m.weight("w", {4, 12}, 48);
    m.node("MatMul", {"x", "w"}, "hidden");
    m.reshape("hidden", output, "y");
    proto::Model model;
    model.set_onnx("model.onnx");
    model.set_onnx_structure(m.parsed().structure());
    model.set_loss(loss);
    return error_of([&] { build_model(model, data); });
  };
  const record_shape one{.dims = {4}, .label_width = 3};
  const record_shape four{.dims = {4}, .label_width = 3, .labels_per_record = 4};
  const auto softmax = proto::SOFTMAX_CROSS_ENTROPY;
  BOOST_TEST(error({-1, 12}, softmax, one) == "(no error)");
  BOOST_TEST(error({-1, 4, 3}, softmax, four) == "(no error)");
  BOOST_TEST(contains(error({-1, 4, 3}, softmax, one),
                      "expected logits for each label. For one label per record, the model must "
                      "return (batch, classes)"));
  BOOST_TEST(contains(error({-1, 3, 4}, softmax, four),
                      "The model must return (batch, labels, classes): classes last, as in "
                      "y.flatten(2).transpose(1, 2)"));
}

// An output (batch) is one number per sample.
BOOST_AUTO_TEST_CASE(outputs_without_units) {
  small_model m;
  m.weight("w", {4}, 4);
  m.node("MatMul", {"x", "w"}, "y");
  proto::Model model;
  model.set_onnx("model.onnx");
  model.set_onnx_structure(m.parsed().structure());
  model.set_loss(proto::MEAN_SQUARED_ERROR);
  const auto built =
    build_model(model, {.dims = {4}, .labels = label_kind::targets, .label_width = 1});
  BOOST_TEST(to_string(built.output.shape()) == "(batch, 1)");
}

// The job stores a large structure as gzip. A mask of 1024 x 1024 truth values takes 1 MiB before.
BOOST_AUTO_TEST_CASE(large_masks) {
  const temporary_directory folder;
  const auto job_of = [&](std::int64_t n, bool noise) {
    small_model m;
    m.weight("w", {n, 4}, static_cast<std::size_t>(4 * n));
    auto& mask = *m.proto.mutable_graph()->add_initializer();
    mask.set_name("mask");
    mask.set_data_type(onnx::TensorProto::INT32);
    mask.add_dims(n);
    mask.add_dims(n);
    std::uint32_t state = 1;
    for (std::int64_t i = 0; i < n * n; ++i) {
      state = state * 1664525U + 1013904223U;
      mask.add_int32_data(noise ? static_cast<std::int32_t>(state >> 8) : i / n >= i % n ? 1 : 0);
    }
    m.whole("first", {}, {0});
    m.node("Gather", {"mask", "first"}, "row");
    auto& cast = m.node("Cast", {"row"}, "factors");
    integer(cast, "to", onnx::TensorProto::FLOAT);
    auto& product = m.node("Gemm", {"x", "w"}, "hidden");
    integer(product, "transB", 1);
    m.node("Mul", {"hidden", "factors"}, "y");
    std::ofstream{folder / "model.onnx", std::ios::binary} << m.proto.SerializeAsString();
    proto::Job job;
    apply_override(job,
                   "model={onnx: '" + (folder / "model.onnx").string() + "' "
                     + "loss: MEAN_SQUARED_ERROR}");
    embed_onnx(job);
    return job;
  };
  const auto small = job_of(16, false);
  BOOST_TEST(onnx_structure_of(small.model()) == small.model().onnx_structure());
  const auto large = job_of(1024, false);
  BOOST_TEST(large.model().onnx_structure().size() < 65536u);
  const auto structure = onnx_structure_of(large.model());
  BOOST_TEST(structure == onnx_model::read(folder / "model.onnx").structure());
  const record_shape data{.dims = {4}, .labels = label_kind::targets, .label_width = 1024};
  std::vector<std::string> notices;
  const auto model = build_model(large.model(), data);
  const auto weights = initial_weights(large, model.graph->parameters(), notices);
  BOOST_TEST_REQUIRE(weights.has_value());
  BOOST_TEST(weights->size() == 4096u);
  // The hash of a job does not depend on the compression.
  auto plain = large;
  plain.mutable_model()->set_onnx_structure(structure);
  BOOST_TEST(job_hash(plain) == job_hash(large));
  const auto refusal = error_of([&] { job_of(1024, true); });
  BOOST_TEST(contains(refusal, "bytes of constants and nodes (compressed: "), refusal);
  BOOST_TEST(contains(refusal, "at most 2 MiB are accepted after compression. Compute large"));
  auto corrupt = large;
  corrupt.mutable_model()->mutable_onnx_structure()->resize(100);
  BOOST_TEST(contains(error_of([&] { build_model(corrupt.model(), data); }), "model.onnx: "));
}

// The model reads tokens from a table. A token beyond the rows of the table is refused, with an
// error that names the record.
BOOST_AUTO_TEST_CASE(tokens_of_a_table) {
  const auto tokens = [](const std::vector<std::string>& moves, std::int64_t axis = 0) {
    small_model m;
    m.proto.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
      onnx::TensorProto::INT64);
    m.weight("large", {9, 3}, 27);
    m.weight("table", {7, 3}, 21);
    std::string last = "x";
    for (const auto& op : moves) {
      m.node(op, {last}, last + "'");
      last += "'";
    }
    integer(m.node("Gather", {"large", last}, "a"), "axis", axis);
    integer(m.node("Gather", {"table", last}, "b"), "axis", axis);
    m.node("Add", {"a", "b"}, "y");
    proto::Model model;
    model.set_onnx_structure(m.parsed().structure());
    return token_input(model);
  };
  BOOST_TEST(tokens({}).value() == 7u);
  BOOST_TEST(tokens({"Identity", "Flatten"}).value() == 7u);
  BOOST_TEST(tokens({"Abs"}).value() == any_int32);
  BOOST_TEST(tokens({}, 1).value() == any_int32);
  small_model numbers;
  numbers.node("Relu", {"x"}, "y");
  proto::Model model;
  model.set_onnx_structure(numbers.parsed().structure());
  BOOST_TEST(!token_input(model).has_value());
}

BOOST_AUTO_TEST_SUITE_END()
