#include "actors/model/layer_list.hpp"

#include "tests/actors/model/example_job.hpp"
#include "tests/support/input_errors.hpp"

BOOST_AUTO_TEST_SUITE(layer_list)

using namespace troupe;
using namespace troupe::test;

namespace {

proto::Model model_of(const std::string& layers) {
  return parse_job("model {\n" + layers + "\nloss: HINGE }", "job").model();
}

std::string problems_of(const std::string& layers) {
  return error_of([&] { list_layers(model_of(layers)); });
}

/// The layers as text, each with its name and inputs: "add_3: conv_1 features".
std::string text_of(const proto::Model& model) {
  const auto layers = list_layers(model);
  std::string result;
  for (const auto& layer : layers) {
    result += layer.name + ":";
    for (auto input : layer.inputs)
      result += " " + (input == 0 ? "features" : layers[input - 1].name);
    result += "\n";
  }
  return result;
}

const std::string dense = "layer { dense { units: 2 } }\n";

} // namespace

BOOST_AUTO_TEST_CASE(layers_follow_each_other) {
  BOOST_TEST(text_of(model_of(dense + "layer { name: \"x\" activation: RELU }\n" + dense))
             == "dense_1: features\nx: dense_1\ndense_3: x\n");
}

BOOST_AUTO_TEST_CASE(named_inputs) {
  BOOST_TEST(text_of(model_of(R"(
    layer { name: "a" dense { units: 2 } }
    layer { name: "b" dense { units: 2 } input: "features" }
    layer { name: "sum" add {} input: "a" input: "b" input: "features" }
    layer { multiply {} input: "sum" input: "sum" })"))
             == "a: features\nb: features\nsum: a b features\nmultiply_4: sum sum\n");
}

BOOST_AUTO_TEST_CASE(blocks_are_unrolled) {
  BOOST_TEST(text_of(model_of(R"(
    layer { name: "in" dense { units: 2 } }
    layer { name: "h" block { times: 2
      layer { name: "ln" layer_norm {} }
      layer { name: "mlp" block {
        layer { name: "fc" dense { units: 2 } }
        layer { name: "sum" add {} input: "fc" input: "ln" input: "input" } } }
      layer { add {} input: "mlp" input: "input" input: "in" } } }
    layer { name: "out" add {} input: "h" input: "in" })"))
             == "in: features\n"
                "h.0.ln: in\nh.0.mlp.fc: h.0.ln\nh.0.mlp.sum: h.0.mlp.fc h.0.ln h.0.ln\n"
                "h.0.add_3: h.0.mlp.sum in in\n"
                "h.1.ln: h.0.add_3\nh.1.mlp.fc: h.1.ln\nh.1.mlp.sum: h.1.mlp.fc h.1.ln h.1.ln\n"
                "h.1.add_3: h.1.mlp.sum h.0.add_3 in\n"
                "out: h.1.add_3 in\n");
  const auto layers = list_layers(model_of("layer { block { times: 1 " + dense + "} }"));
  BOOST_REQUIRE(layers.size() == 1u);
  BOOST_TEST(layers[0].name == "block_1.0.dense_1");
  BOOST_TEST(layers[0].path == "model.layer[0].block.layer[0]");
}

BOOST_AUTO_TEST_CASE(inputs_that_are_not_there) {
  BOOST_TEST(contains(problems_of(dense + "layer { dense { units: 2 } input: \"dence_1\" }\n"),
                      "model.layer[1].input[0]: no layer \"dence_1\" above; did you mean "
                      "\"dense_1\"?"));
  BOOST_TEST(contains(problems_of("layer { name: \"a\" dense { units: 2 } input: \"b\" }\n"
                                  "layer { name: \"b\" dense { units: 2 } input: \"a\" }"),
                      "model.layer[0].input[0]: \"b\" is a layer below, which is computed later; "
                      "layers can only read those above them (line 2)"));
  BOOST_TEST(contains(problems_of(dense
                                  + "layer { name: \"a\" add {} input: \"a\" input: "
                                    "\"dense_1\" }"),
                      "\"a\" is the layer itself"));
  // Other layers can read the output of a block, but not the layers inside it.
  BOOST_TEST(contains(problems_of("layer { name: \"h\" block { layer { name: \"in\" dense { units: "
                                  "2 } } } }\nlayer { dense { units: 2 } input: \"in\" }"),
                      "no layer \"in\" above"));
  BOOST_TEST(contains(problems_of("layer { dense { units: 2 } input: \"input\" }"),
                      "no layer \"input\" above"));
}

BOOST_AUTO_TEST_CASE(numbers_of_inputs) {
  BOOST_TEST(
    contains(problems_of(dense + "layer { add {} }"),
             "model.layer[1]: add reads two inputs or more, but no input is named (line 3)"));
  BOOST_TEST(contains(problems_of(dense + "layer { matmul {} input: \"dense_1\" }"),
                      "matmul reads two inputs, but 1 are named"));
  BOOST_TEST(contains(problems_of(dense
                                  + "layer { flatten {} input: \"dense_1\" input: "
                                    "\"features\" }"),
                      "flatten reads one input, but 2 are named"));
}

BOOST_AUTO_TEST_CASE(names) {
  for (const char* name : {"input", "features"})
    BOOST_TEST(
      contains(problems_of("layer { name: \"" + std::string{name} + "\" dense { units: 2 } }"),
               "already means"));
  BOOST_TEST(contains(problems_of("layer { name: \"a\" dense { units: 2 } }\n"
                                  "layer { name: \"a\" dense { units: 2 } }"),
                      "model.layer[1].name: \"a\" is the name of another layer; names must differ "
                      "(line 3)"));
  BOOST_TEST(contains(problems_of("layer { name: \"h.0.a\" dense { units: 2 } }\nlayer { name: "
                                  "\"h\" block { times: 1 layer { name: \"a\" dense { units: 2 } } "
                                  "} }"),
                      "\"h.0.a\" is the name of another layer"));
  BOOST_TEST(problems_of(dense + "layer { name: \"b\" dense { units: 2 } input: \"features\" }")
             == "model.layer[0]: no layer reads \"dense_1\"; name it as an input, or take it out "
                "(line 2)");
}

BOOST_AUTO_TEST_CASE(blocks_have_bounds) {
  BOOST_TEST(contains(problems_of("layer { block {} }"), "model.layer[0].block: no layers"));
  BOOST_TEST(contains(problems_of("layer { block { times: 0 " + dense + "} }"), "at least 1"));
  BOOST_TEST(contains(problems_of("layer { block { times: 4000000000 " + dense + "} }"),
                      "more than 4096 layers"));
  std::string nested = dense;
  for (int i = 0; i < 9; ++i)
    nested = "layer { block { times: 1000000 " + nested + " } }";
  BOOST_TEST(contains(problems_of(nested), "more than"));
  std::string empty = "layer { block {} }";
  for (int i = 0; i < 7; ++i)
    empty = "layer { block { times: 4000000000 " + empty + " } }";
  BOOST_TEST(contains(problems_of(empty), "no layers"));
}

BOOST_AUTO_TEST_CASE(numbers_out_of_range) {
  const auto problem = [](const std::string& layer, const std::string& text) {
    BOOST_TEST(contains(problems_of("layer { " + layer + " }"), "model.layer[0]" + text), layer);
  };
  problem("", ": no kind");
  problem("dense {}", ".dense.units: expected 1 to 16777216, got 0 (line 2)");
  problem("dense { units: 1 weights {} }", ".dense.weights: no kind");
  problem("dense { units: 1 weights { constant { value: inf } } }",
          ".dense.weights.constant.value");
  problem("dense { units: 1 weights { normal { deviation: 0 } } }",
          ".dense.weights.normal.deviation: expected a finite number, more than 0");
  problem("dense { units: 1 weights { uniform { bound: -1 } } }", ".dense.weights.uniform.bound");
  problem("dense { units: 1 weights { orthogonal { gain: nan } } }",
          ".dense.weights.orthogonal.gain");
  problem("conv2d { kernel: 3 }", ".conv2d.filters: expected 1");
  problem("conv2d { filters: 1 }", ".conv2d.kernel: expected one number, or two");
  problem("conv2d { filters: 1 kernel: [1, 2, 3] }", ".conv2d.kernel: expected one number, or two");
  problem("conv2d { filters: 1 kernel: 0 }", ".conv2d.kernel: expected 1 to 4096, got 0");
  problem("conv2d { filters: 1 kernel: 1 stride: 0 }", ".conv2d.stride: expected 1 to 4096, got 0");
  problem("conv2d { filters: 1 kernel: 1 padding: 9999 }", ".conv2d.padding: expected 0 to 4096");
  problem("conv2d { filters: 1 kernel: 1 groups: 0 }", ".conv2d.groups: expected 1");
  problem("conv2d { filters: 1 kernel: 1 dilation: 0 }",
          ".conv2d.dilation: expected 1 to 4096, got 0 (line 2)");
  problem("conv_transpose2d { kernel: 3 }", ".conv_transpose2d.filters: expected 1");
  problem("conv_transpose2d { filters: 1 }", ".conv_transpose2d.kernel: expected one number");
  problem("conv_transpose2d { filters: 1 kernel: 1 groups: 0 }",
          ".conv_transpose2d.groups: expected 1");
  problem("conv_transpose2d { filters: 1 kernel: 1 dilation: [1, 1, 1] }",
          ".conv_transpose2d.dilation: expected one number, or two");
  problem("conv_transpose2d { filters: 1 kernel: 1 output_padding: 4097 }",
          ".conv_transpose2d.output_padding: expected 0 to 4096, got 4097 (line 2)");
  problem("conv_transpose2d { filters: 1 kernel: 1 weights {} }",
          ".conv_transpose2d.weights: no kind");
  problem("max_pool {}", ".max_pool.kernel");
  problem("average_pool { kernel: 2 stride: 0 }", ".average_pool.stride");
  problem("reshape {}", ".reshape.dims: expected 1 to 7 numbers");
  problem("reshape { dims: 0 }", ".reshape.dims: expected 1 to");
  problem("batch_norm { epsilon: 0 }", ".batch_norm.epsilon: expected a finite number");
  problem("batch_norm { momentum: 0 }", ".batch_norm.momentum: expected more than 0");
  problem("batch_norm { momentum: nan }", ".batch_norm.momentum: expected more than 0");
  problem("layer_norm { epsilon: nan }", ".layer_norm.epsilon");
  problem("rms_norm { epsilon: 0 }", ".rms_norm.epsilon: expected a finite number, more than 0");
  problem("group_norm {}", ".group_norm.groups: expected 1 to 16777216, got 0 (line 2)");
  problem("group_norm { groups: 1 epsilon: -1 }", ".group_norm.epsilon");
  problem("dropout { rate: 1 }", ".dropout.rate: expected 0 or more and less than 1");
  problem("embedding {}", ".embedding.width: expected 1");
  problem("embedding { width: 1 entries: 0 }", ".embedding.entries: expected 1");
  problem("position_embedding { weights {} }", ".position_embedding.weights: no kind");
  problem("rnn {}", ".rnn.hidden: expected 1");
  problem("lstm { hidden: 1 layers: 65 }", ".lstm.layers: expected 1 to 64");
  problem("gru { hidden: 1 recurrent_weights {} }", ".gru.recurrent_weights: no kind");
  problem("lstm { hidden: 1 reset_after: false }",
          ".lstm.reset_after: only a gru has a reset gate");
  problem("attention {}", ".attention.heads: expected 1");
  problem("attention { heads: 1 } input: \"features\" input: \"features\"",
          ".attention.causal: attention over a second input cannot be causal; add causal: false "
          "(line 2)");
  problem("attention { heads: 1 causal: false } input: [\"features\", \"features\", \"features\"]",
          ": attention reads one input or two, but 3 are named (line 2)");
  problem("concat { axis: 0 } input: \"features\" input: \"features\"", ".concat.axis: axis 0");
  problem("transpose { axes: 0 }", ".transpose.axes: expected 2 to 8");
  problem("slice { axis: 0 }", ".slice.axis: axis 0 is the batch");
  problem("slice { begin: 3 end: 3 }", ".slice.end: expected more than begin");
  problem("sum { axis: 0 }", ".sum.axis: axis 0");
  problem("mean { axis: 0 }", ".mean.axis: axis 0");
}

// A block repeats its layers three times. A problem in it is reported only once.
BOOST_AUTO_TEST_CASE(problems_of_repeated_layers) {
  BOOST_TEST(
    problems_of("layer { block { times: 3 layer { dense {} } } }")
    == "model.layer[0].block.layer[0].dense.units: expected 1 to 16777216, got 0 (line 2)");
}

// The line number of a layer is known only if the job is in the text format, and not for layers
// from overrides or JSON.
BOOST_AUTO_TEST_CASE(lines) {
  const auto model = model_of("layer { dense { units: 1 } line: 77 }\n\n\nlayer {\n block {\n\n "
                              "layer { dense { units: 1 } } } }");
  BOOST_TEST(model.layer(0).line() == 2u);
  BOOST_TEST(model.layer(1).line() == 5u);
  BOOST_TEST(model.layer(1).block().layer(0).line() == 8u);
  const auto json = parse_job(R"({"model": {"layer": [{"dense": {}, "line": 3}]}})", "x.json");
  BOOST_TEST(!json.model().layer(0).has_line());
  auto job = digits_job();
  BOOST_TEST(job.model().layer(0).has_line());
  BOOST_TEST(!contains(job_text(job), "line"));
  const auto hash = job_hash(job);
  job.mutable_model()->mutable_layer(0)->set_line(99);
  BOOST_TEST(job_hash(job) == hash);
}

BOOST_AUTO_TEST_SUITE_END()
