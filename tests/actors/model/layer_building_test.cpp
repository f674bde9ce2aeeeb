#include "actors/model/model_builder.hpp"

#include "actors/model/job_file.hpp"
#include "kernels/cpu/executor.hpp"
#include "kernels/error.hpp"
#include "kernels/graph/initializers.hpp"
#include "kernels/plan/plan.hpp"
#include "tests/support/input_errors.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

BOOST_AUTO_TEST_SUITE(layer_building)

using namespace troupe;
using namespace troupe::test;

namespace {

/// Builds layers for records of numbers, or of tokens if `vocabulary` is given. The loss accepts
/// any outputs.
built_model build(const std::string& layers, const shape& dims, const shape& output,
                  std::size_t vocabulary = 0) {
  record_shape data;
  data.dims = dims;
  data.features = vocabulary > 0 ? feature_kind::tokens : feature_kind::numbers;
  data.vocabulary = vocabulary;
  data.labels = label_kind::targets;
  data.label_width = output.elements();
  const auto job =
    parse_job("model { " + layers + (output.rank() == 1 ? "" : " layer { flatten {} }")
                + " loss: MEAN_SQUARED_ERROR }",
              "job");
  return build_model(job.model(), data);
}

/// All tensors of a model as text: "NAME (sizes), ...".
std::string tensors_of(const built_model& x) {
  std::string result;
  for (const auto& entry : x.graph->parameters().entries())
    result += (result.empty() ? "" : ", ") + entry.name + " " + to_string(entry.shape);
  return result;
}

/// Checks which output shape a layer has for one record, and which tensors.
void check(const std::string& layer, const shape& dims, const shape& output,
           const std::string& tensors = "", std::size_t vocabulary = 0) {
  BOOST_TEST_CONTEXT(layer) {
    const auto model = build("layer { name: \"x\" " + layer + " }", dims, output, vocabulary);
    auto expected = output.extents();
    expected.insert(expected.begin(), shape::batch);
    BOOST_TEST(to_string(model.layers[0].output) == to_string(shape{expected}));
    BOOST_TEST(tensors_of(model) == tensors);
    BOOST_TEST(model.layers[0].name == "x");
    BOOST_TEST(model.layers[0].parameters == model.graph->parameters().size());
  }
}

std::string problem_of(const std::string& layers, const shape& dims, std::size_t vocabulary = 0) {
  return error_of([&] { build(layers, dims, {1}, vocabulary); });
}

} // namespace

BOOST_AUTO_TEST_CASE(dense_layers) {
  check("dense { units: 3 }", {4}, {3}, "x.weight (3, 4), x.bias (3)");
  check("dense { units: 3 bias: false activation: GELU }", {4}, {3}, "x.weight (3, 4)");
  // A dense layer flattens images, and multiplies sequences at each position.
  check("dense { units: 3 }", {2, 4, 5}, {3}, "x.weight (3, 40), x.bias (3)");
  check("dense { units: 3 }", {5, 4}, {5, 3}, "x.weight (3, 4), x.bias (3)");
}

// A dense layer stores its weights as (units, inputs), but as (inputs, units) for sparse features.
// In both cases, the range of the initial values must depend on the number of inputs.
BOOST_AUTO_TEST_CASE(initial_weights_over_sparse_features) {
  const auto largest = [](feature_kind features) {
    record_shape data;
    data.dims = {2000};
    data.features = features;
    data.labels = label_kind::targets;
    data.label_width = 4;
    const auto job = parse_job("model { layer { dense { units: 4 weights { he_uniform {} } } } "
                               "loss: MEAN_SQUARED_ERROR }",
                               "job");
    const auto model = build_model(job.model(), data);
    const auto& parameters = model.graph->parameters();
    std::vector<float> weights(parameters.entries()[0].size);
    initialize(parameters, {0, weights.size()}, 1, weights);
    return *std::ranges::max_element(weights);
  };
  for (const auto features : {feature_kind::numbers, feature_kind::sparse}) {
    const auto bound = std::sqrt(6.0F / 2000);
    BOOST_TEST(largest(features) <= bound);
    BOOST_TEST(largest(features) > 0.99F * bound);
  }
}

BOOST_AUTO_TEST_CASE(image_layers) {
  check("conv2d { filters: 6 kernel: 3 }", {4, 7, 8}, {6, 5, 6},
        "x.weight (6, 4, 3, 3), x.bias (6)");
  check("conv2d { filters: 6 kernel: [3, 2] stride: 2 padding: [1, 0] groups: 2 bias: false }",
        {4, 7, 8}, {6, 4, 4}, "x.weight (6, 2, 3, 2)");
  check("max_pool { kernel: 2 }", {4, 6, 8}, {4, 3, 4});
  check("average_pool { kernel: [3, 2] stride: [1, 3] padding: 1 }", {4, 6, 8}, {4, 6, 3});
  check("global_average_pool {}", {4, 6, 8}, {4});
  check("conv2d { filters: 6 kernel: 3 dilation: [2, 1] padding: [2, 0] }", {4, 7, 8}, {6, 7, 6},
        "x.weight (6, 4, 3, 3), x.bias (6)");
  check("max_pool { kernel: 2 ceil_mode: true }", {4, 7, 8}, {4, 4, 4});
  check("average_pool { kernel: 3 stride: 2 padding: 1 ceil_mode: true }", {4, 6, 7}, {4, 4, 4});
  check("conv_transpose2d { filters: 6 kernel: 3 }", {4, 7, 8}, {6, 9, 10},
        "x.weight (4, 6, 3, 3), x.bias (6)");
  check("conv_transpose2d { filters: 6 kernel: [3, 2] stride: 2 padding: [1, 0] output_padding: "
        "[1, 0] dilation: [1, 3] groups: 2 bias: false }",
        {4, 7, 8}, {6, 14, 18}, "x.weight (4, 3, 3, 2)");
  check("group_norm { groups: 2 }", {4, 6, 8}, {4, 6, 8}, "x.weight (4), x.bias (4)");
  check("group_norm { groups: 4 }", {4}, {4}, "x.weight (4), x.bias (4)");
  check("batch_norm {}", {4, 6, 8}, {4, 6, 8},
        "x.weight (4), x.bias (4), x.running_mean (4), x.running_var (4)");
  check("batch_norm {}", {5}, {5},
        "x.weight (5), x.bias (5), x.running_mean (5), x.running_var (5)");
}

BOOST_AUTO_TEST_CASE(sequence_layers) {
  check("layer_norm {}", {5, 4}, {5, 4}, "x.weight (4), x.bias (4)");
  check("rms_norm {}", {5, 4}, {5, 4}, "x.weight (4)");
  check("rms_norm {}", {4}, {4}, "x.weight (4)");
  check("embedding { width: 3 }", {5}, {5, 3}, "x.weight (11, 3)", 11);
  check("embedding { width: 3 entries: 20 }", {5}, {5, 3}, "x.weight (20, 3)", 11);
  check("position_embedding {}", {5, 4}, {5, 4}, "x.weight (5, 4)");
  check("rnn { hidden: 3 }", {5, 4}, {5, 3},
        "x.weight_ih_l0 (3, 4), x.weight_hh_l0 (3, 3), x.bias_ih_l0 (3), x.bias_hh_l0 (3)");
  check("lstm { hidden: 3 last: true }", {5, 4}, {3},
        "x.weight_ih_l0 (12, 4), x.weight_hh_l0 (12, 3), x.bias_ih_l0 (12), x.bias_hh_l0 (12)");
  check("gru { hidden: 3 layers: 2 }", {5, 4}, {5, 3},
        "x.weight_ih_l0 (9, 4), x.weight_hh_l0 (9, 3), x.bias_ih_l0 (9), x.bias_hh_l0 (9), "
        "x.weight_ih_l1 (9, 3), x.weight_hh_l1 (9, 3), x.bias_ih_l1 (9), x.bias_hh_l1 (9)");
  check("attention { heads: 2 }", {5, 4}, {5, 4},
        "x.in_proj_weight (12, 4), x.in_proj_bias (12), x.out_proj.weight (4, 4), "
        "x.out_proj.bias (4)");
  check("attention { heads: 1 bias: false }", {5, 4}, {5, 4},
        "x.in_proj_weight (12, 4), x.out_proj.weight (4, 4)");
  check("attention { heads: 1 bias: false causal: false } input: \"features\" input: \"features\"",
        {5, 4}, {5, 4}, "x.in_proj_weight (12, 4), x.out_proj.weight (4, 4)");
  check("gru { hidden: 3 reset_after: false }", {5, 4}, {5, 3},
        "x.weight_ih_l0 (9, 4), x.weight_hh_l0 (9, 3), x.bias_ih_l0 (9), x.bias_hh_l0 (9)");
  check("rnn { hidden: 3 bidirectional: true }", {5, 4}, {5, 6},
        "x.weight_ih_l0 (3, 4), x.weight_hh_l0 (3, 3), x.bias_ih_l0 (3), x.bias_hh_l0 (3), "
        "x.weight_ih_l0_reverse (3, 4), x.weight_hh_l0_reverse (3, 3), x.bias_ih_l0_reverse (3), "
        "x.bias_hh_l0_reverse (3)");
  check("lstm { hidden: 1 layers: 2 bidirectional: true last: true }", {5, 4}, {2},
        "x.weight_ih_l0 (4, 4), x.weight_hh_l0 (4, 1), x.bias_ih_l0 (4), x.bias_hh_l0 (4), "
        "x.weight_ih_l0_reverse (4, 4), x.weight_hh_l0_reverse (4, 1), x.bias_ih_l0_reverse (4), "
        "x.bias_hh_l0_reverse (4), "
        "x.weight_ih_l1 (4, 2), x.weight_hh_l1 (4, 1), x.bias_ih_l1 (4), x.bias_hh_l1 (4), "
        "x.weight_ih_l1_reverse (4, 2), x.weight_hh_l1_reverse (4, 1), x.bias_ih_l1_reverse (4), "
        "x.bias_hh_l1_reverse (4)");
}

BOOST_AUTO_TEST_CASE(layers_without_tensors) {
  for (const char* how : {"NONE", "RELU", "TANH", "SIGMOID", "LEAKY_RELU", "GELU", "SILU"})
    check("activation: " + std::string{how}, {4}, {4});
  check("flatten {}", {2, 3, 4}, {24});
  check("reshape { dims: [4, 6] }", {2, 3, 4}, {4, 6});
  check("dropout { rate: 0.5 }", {4}, {4});
  check("softmax {}", {5, 4}, {5, 4});
  check("transpose { axes: [0, 2, 1] }", {5, 4}, {4, 5});
  check("slice { begin: 1 end: 3 }", {5, 4}, {2, 4});
  check("slice { axis: 2 begin: 1 }", {5, 4}, {5, 3});
  check("sum { axis: 2 }", {5, 4}, {5});
  check("mean { axis: 1 }", {2, 3, 4}, {3, 4});
  check("add {} input: \"features\" input: \"features\"", {5, 4}, {5, 4});
  check("multiply {} input: \"features\" input: \"features\" input: \"features\"", {4}, {4});
  check("concat {} input: \"features\" input: \"features\"", {5, 4}, {10, 4});
  check("concat { axis: 2 } input: \"features\" input: \"features\"", {5, 4}, {5, 8});
  check("matmul { transpose_b: true } input: \"features\" input: \"features\"", {5, 4}, {5, 5});
  check("matmul { transpose_a: true } input: \"features\" input: \"features\"", {5, 4}, {4, 4});
}

// Checks the values of layers that are composed of several operations in actors/model.
BOOST_AUTO_TEST_CASE(values) {
  const auto value = [](const std::string& layers, const shape& dims, const shape& output,
                        std::vector<float> x) {
    const auto model = build(layers, dims, output);
    auto options = cpu_plan_options();
    options.fetches = {model.output};
    executor<float> run(std::make_shared<plan>(*model.graph, options));
    const std::array<feed<float>, 2> feeds{feed<float>{x.data()}, {}};
    run_arguments<float> arguments;
    arguments.rows = 1;
    arguments.feeds = feeds;
    run.run(arguments);
    return std::vector<float>{run.fetched(0).begin(), run.fetched(0).end()};
  };
  using floats = std::vector<float>;
  const auto same = [](const floats& a, const floats& b) {
    BOOST_TEST(a == b, boost::test_tools::per_element());
  };
  const floats x{1, 2, 3, 4, 5, 6};
  same(value("layer { sum { axis: 1 } }", {2, 3}, {3}, x), {5, 7, 9});
  same(value("layer { mean { axis: 2 } }", {2, 3}, {2}, x), {2, 5});
  same(value("layer { slice { axis: 2 begin: 1 end: 2 } }", {2, 3}, {2, 1}, x), {2, 5});
  same(value("layer { name: \"r\" activation: NONE } layer { add {} input: \"features\" input: "
             "\"features\" input: \"r\" }",
             {6}, {6}, x),
       {3, 6, 9, 12, 15, 18});
  same(value("layer { multiply {} input: \"features\" input: \"features\" }", {6}, {6}, x),
       {1, 4, 9, 16, 25, 36});
}

BOOST_AUTO_TEST_CASE(initial_values) {
  const auto starts = [](const std::string& layer, const shape& dims) {
    const auto model = build("layer { " + layer + " } layer { dense { units: 1 } }", dims, {1});
    return to_string(model.graph->parameters().entries()[0].initial);
  };
  BOOST_TEST(starts("dense { units: 2 }", {3}) == "glorot_uniform");
  BOOST_TEST(starts("dense { units: 2 activation: RELU }", {3}) == "he_uniform");
  BOOST_TEST(starts("dense { units: 2 weights { he_normal {} } }", {3}) == "he_normal");
  BOOST_TEST(starts("dense { units: 2 weights { glorot_normal {} } }", {3}) == "glorot_normal");
  BOOST_TEST(starts("dense { units: 2 weights { normal { deviation: 0.5 } } }", {3})
             == to_string(initializer::normal(0.5)));
  BOOST_TEST(starts("dense { units: 2 weights { uniform { bound: 0.5 } } }", {3})
             == to_string(initializer::uniform(0.5)));
  BOOST_TEST(starts("dense { units: 2 weights { orthogonal { gain: 2 } } }", {3})
             == to_string(initializer::orthogonal(2)));
  BOOST_TEST(starts("dense { units: 2 weights { constant { value: 0.5 } } }", {3})
             == to_string(initializer::constant(0.5)));
  BOOST_TEST(starts("conv2d { filters: 2 kernel: 1 weights { glorot_uniform {} } }", {3, 1, 1})
             == "glorot_uniform");
  const auto model =
    build("layer { lstm { hidden: 2 last: true weights { he_uniform {} } recurrent_weights { "
          "he_normal {} } } } layer { batch_norm { momentum: 0.25 } }",
          {3, 3}, {2});
  const auto& entries = model.graph->parameters().entries();
  BOOST_TEST(to_string(entries[0].initial) == "he_uniform");
  BOOST_TEST(to_string(entries[1].initial) == "he_normal");
  BOOST_TEST(to_string(entries[4].initial) == to_string(initializer::constant(1)));
  BOOST_TEST((entries[6].kind == parameter_kind::state));
  BOOST_TEST(entries[6].decay == 0.25);
  BOOST_TEST(to_string(entries[7].initial) == to_string(initializer::constant(1)));
}

// If a layer computes differently in training, this layer and all later nodes exist twice in the
// graph. Earlier nodes exist once.
BOOST_AUTO_TEST_CASE(training_and_testing) {
  const auto plain = build("layer { dense { units: 2 } }", {3}, {2});
  BOOST_TEST((plain.loss == plain.training_loss));
  const auto model =
    build("layer { name: \"a\" dense { units: 4 } } layer { name: \"b\" dropout {} }"
          "layer { name: \"c\" dense { units: 2 } }",
          {3}, {2});
  BOOST_TEST((model.loss != model.training_loss));
  BOOST_TEST(tensors_of(model) == "a.weight (4, 3), a.bias (4), c.weight (2, 4), c.bias (2)");
  const auto count = [&](const std::string& name) {
    return std::ranges::count(model.graph->nodes(), name, &node::name);
  };
  BOOST_TEST(count("a") == 1);
  BOOST_TEST(count("a/training") == 0);
  BOOST_TEST(count("b/training") == 1);
  BOOST_TEST(count("c") == 1);
  BOOST_TEST(count("c/training") == 1);
}

BOOST_AUTO_TEST_CASE(shapes_that_do_not_fit) {
  BOOST_TEST(
    problem_of("layer { name: \"fc\" dense { units: 4 } }\nlayer { name: \"conv\" conv2d { "
               "filters: 2 kernel: 3 } }",
               {3})
    == "model.layer[1]: layer \"conv\" cannot read \"fc\" (batch, 4): expected images "
       "(batch, channels, height, width) (line 2)");
  const auto sum =
    problem_of("layer { name: \"a\" dense { units: 4 } }\nlayer { name: \"b\" dense { units: 5 } "
               "input: \"features\" }\n\nlayer { name: \"sum\" add {} input: \"a\" input: \"b\" }",
               {3});
  BOOST_TEST(
    contains(sum,
             "model.layer[2]: layer \"sum\" cannot read \"a\" (batch, 4) and \"b\" (batch, "
             "5): add: "));
  BOOST_TEST(contains(sum, "(line 4)"));
  const auto refused = [](const std::string& layer, const shape& dims, const char* text,
                          std::size_t vocabulary = 0) {
    BOOST_TEST(contains(problem_of("layer { name: \"x\" " + layer + " }", dims, vocabulary), text));
  };
  refused("conv2d { filters: 3 kernel: 1 groups: 2 }", {4, 5, 5},
          "2 groups do not divide 4 channels and 3 filters");
  refused("max_pool { kernel: 9 }", {4, 5, 5}, "does not fit into images");
  refused("global_average_pool {}", {4}, "\"features\" (batch, 4): average_pool");
  refused("reshape { dims: [7] }", {4}, "expected the same number of elements");
  refused("embedding { width: 2 }", {4}, "an embedding reads tokens");
  refused("embedding { width: 2 entries: 10 }", {4}, "a table of 10 entries, but the data has 11",
          11);
  refused("dense { units: 2 }", {4}, "int32", 11);
  refused("dense { units: 2 }", {}, "a tensor (batch, ..., features)");
  refused("lstm { hidden: 2 }", {4}, "expected a sequence (batch, time, features)");
  refused("attention { heads: 3 }", {5, 4}, "in 3 heads");
  refused("attention { heads: 2 }", {4}, "a sequence");
  const auto crossed = problem_of("layer { name: \"a\" dense { units: 6 } }\nlayer { name: \"x\" "
                                  "attention { heads: 2 causal: false } input: \"features\" input: "
                                  "\"a\" }",
                                  {5, 4});
  BOOST_TEST(contains(crossed, "two sequences with the same number of features (line 2)"));
  refused("conv_transpose2d { filters: 3 kernel: 1 groups: 2 }", {4, 5, 5},
          "2 groups do not divide 4 channels and 3 filters");
  refused("conv_transpose2d { filters: 3 kernel: 3 output_padding: 1 }", {4, 5, 5},
          "an output padding of 1 and 1; expected at least 0 and less than the strides");
  refused("conv_transpose2d { filters: 3 kernel: 3 padding: 2 }", {4, 2, 2}, "leaves nothing of");
  refused("conv_transpose2d { filters: 3 kernel: 3 }", {4}, "expected images");
  refused("conv2d { filters: 3 kernel: 3 dilation: 3 }", {4, 5, 5},
          "3 x 3, dilated by 3 and 3 does not fit");
  refused("group_norm { groups: 3 }", {4, 5, 5}, "3 groups do not divide the 4 channels");
  refused("gru { hidden: 2 bidirectional: true }", {4}, "expected a sequence");
  refused("position_embedding {}", {4}, "a sequence");
  refused("transpose { axes: [1, 0] }", {4}, "the batch first");
  refused("slice { begin: 1 end: 9 }", {5, 4}, "positions 1 to 9 of axis 1");
  refused("slice { begin: 5 }", {5, 4}, "axis 1 has no position 5, at which the slice begins");
  refused("slice { axis: 3 }", {5, 4}, "axis 3 is out of range");
  refused("mean { axis: 3 }", {5, 4}, "axis 3 is out of range");
  refused("concat { axis: 2 } input: \"features\" input: \"features\"", {4},
          "axis 2 is out of range");
  refused("matmul {} input: \"features\" input: \"features\"", {5, 4}, "different lengths");
  refused("batch_norm {}", {}, "(batch, channels, ...)");
}

BOOST_AUTO_TEST_CASE(losses) {
  const auto of = [](const std::string& layers, const std::string& loss, label_kind labels,
                     std::size_t width, const shape& dims = {3}, std::size_t per_record = 1) {
    record_shape data;
    data.dims = dims;
    data.labels = labels;
    data.label_width = width;
    data.labels_per_record = per_record;
    return build_model(parse_job("model { " + layers + " loss: " + loss + " }", "job").model(),
                       data);
  };
  const auto error = [&](const std::string& layers, const std::string& loss, label_kind labels,
                         std::size_t width, const shape& dims = {3}, std::size_t per_record = 1) {
    return error_of([&] { of(layers, loss, labels, width, dims, per_record); });
  };
  const std::string one = "layer { dense { units: 1 } }";
  const std::string two = "layer { dense { units: 2 } }";
  for (const char* loss :
       {"MEAN_SQUARED_ERROR", "MEAN_ABSOLUTE_ERROR", "BINARY_CROSS_ENTROPY", "HINGE"}) {
    BOOST_TEST(!of(two, loss, label_kind::targets, 2).correct.valid());
    BOOST_TEST(contains(error(two, loss, label_kind::targets, 3),
                        "layer \"dense_1\" has 2 units, but the data has 3 targets"));
  }
  for (const char* loss : {"BINARY_CROSS_ENTROPY", "HINGE"}) {
    BOOST_TEST(of(one, loss, label_kind::classes, 2).correct.valid());
    BOOST_TEST(contains(error(two, loss, label_kind::classes, 2), "needs one unit"));
    BOOST_TEST(
      contains(error(one, loss, label_kind::classes, 3), "needs two classes, but the data has 3"));
  }
  for (const char* loss : {"MEAN_SQUARED_ERROR", "MEAN_ABSOLUTE_ERROR"})
    BOOST_TEST(contains(error(one, loss, label_kind::classes, 2), "needs targets"));
  // A sequence with a label at each position.
  const auto sequence = of(two, "SOFTMAX_CROSS_ENTROPY label_smoothing: 0.1 ignored_label: 7",
                           label_kind::classes, 2, {5, 3}, 5);
  BOOST_TEST((sequence.output.shape() == shape{shape::batch, 5, 2}));
  BOOST_TEST(sequence.loss.node().factor == 0.2);
  BOOST_TEST(sequence.loss.node().labels.smoothing == 0.1);
  BOOST_TEST((sequence.correct.node().labels.ignored == 7));
  BOOST_TEST(
    contains(error(two, "SOFTMAX_CROSS_ENTROPY", label_kind::classes, 2, {5, 3}, 1),
             "makes (batch, 5, 2) of each batch, but the data has labels (batch); expected "
             "logits for each label"));
}

BOOST_AUTO_TEST_SUITE_END()
