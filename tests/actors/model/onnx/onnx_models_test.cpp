// Imports models that PyTorch and Keras exported (with the scripts export.py). Compares their
// outputs and their training with recorded numbers.

#include "actors/model/model_builder.hpp"
#include "actors/model/model_source.hpp"
#include "actors/model/onnx/importer.hpp"
#include "actors/model/onnx/model.hpp"
#include "kernels/devices/graph_session.hpp"
#include "kernels/formats/file.hpp"
#include "kernels/graph/gradients.hpp"
#include "kernels/graph/operations.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/input_errors.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(onnx_models)

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::size_t batch = 6;
constexpr std::int64_t classes = 3;
constexpr double rate = 0.1;

std::filesystem::path folder() {
  return source_folder() / "tests/actors/model/onnx";
}

onnx_model load(const std::string& name) {
  return onnx_model::read(folder() / (name + ".onnx"));
}

using numbers = std::map<std::string, std::vector<double>>;

numbers expected(const std::filesystem::path& from) {
  numbers result;
  std::ifstream in{folder() / from};
  for (std::string line; std::getline(in, line);) {
    std::istringstream words{line};
    std::string name;
    std::string number;
    words >> name;
    while (words >> number)
      result[name].push_back(std::strtod(number.c_str(), nullptr));
  }
  return result;
}

/// A model with its loss and the batch of export.py.
struct training {
  onnx_model model;
  graph g;
  expression features;
  expression labels = g.placeholder("labels", {shape::batch}, dtype::int32);
  expression output;
  expression loss;
  std::vector<double> images;
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> wanted;

  explicit training(const std::string& name) : model(load(name)) {
    const auto port = onnx_inputs(model).at(0);
    auto dims = port.dims;
    dims[0] = shape::batch;
    features = g.placeholder("features", shape{dims}, port.type);
    output = import_onnx(model, g, {features}).at(0).x;
    loss = softmax_cross_entropy(import_onnx(model, g, {features}, true).at(0).x, labels);
    for (std::size_t i = 0; i < batch * features.shape().elements(1); ++i) {
      images.push_back(std::sin(0.7 * static_cast<double>(i)));
      tokens.push_back(static_cast<std::int32_t>((3 * i + i * i) % 7));
    }
    for (std::size_t i = 0; i < batch; ++i)
      wanted.push_back(static_cast<std::int32_t>(i % classes));
  }

  std::vector<session_feed<double>> feeds() const {
    return {features.node().type == dtype::int32 ? session_feed<double>{features, tokens}
                                                 : session_feed<double>{features, images},
            session_feed<double>{labels, wanted}};
  }
};

/// Compares the outputs of a model and the losses of ten training steps with recorded numbers.
void check_training(const std::string& file, const std::vector<double>& wanted,
                    const std::vector<double>& losses) {
  training t{file};
  std::vector<expression> variables;
  for (const auto& entry : t.g.parameters().entries())
    if (entry.kind == parameter_kind::trainable)
      variables.push_back(t.g.find(entry.name));
  auto fetches = gradients(t.loss, variables);
  fetches.push_back(t.loss);
  graph_session<double> s{t.g};
  const auto weights = t.model.values(t.g.parameters());
  BOOST_TEST_REQUIRE(weights.size() == s.variables().size());
  std::ranges::copy(weights, s.variables().begin());
  const auto outputs = s.run(t.feeds(), std::array{t.output})[0];
  BOOST_TEST_REQUIRE(outputs.size() == wanted.size());
  // Tolerance: constants of the models, such as the square root of 2, have the precision of
  // float32.
  for (std::size_t i = 0; i < outputs.size(); ++i)
    BOOST_TEST(std::abs(outputs[i] - wanted[i]) < 1e-6);
  BOOST_TEST(losses.size() == 10u);
  for (const auto before : losses) {
    const auto values = s.run(t.feeds(), fetches);
    BOOST_TEST(std::abs(values.back()[0] / batch - before) < 1e-6 * before);
    for (std::size_t k = 0; k < variables.size(); ++k) {
      const auto w = s.variable(variables[k].name());
      for (std::size_t i = 0; i < w.size(); ++i)
        w[i] -= rate * values[k][i] / batch;
    }
  }
}

} // namespace

BOOST_AUTO_TEST_CASE(they_compute_and_train_as_in_pytorch) {
  const auto references = expected("expected.txt");
  BOOST_TEST_REQUIRE(references.size() == 10u);
  for (const std::string name : {"image", "lstm", "gru", "attention", "normal"})
    BOOST_TEST_CONTEXT(name)
  check_training(name, references.at(name), references.at(name + "_losses"));
}

// The models were written by PyTorch's default exporter, with an open and with a fixed batch, and
// by its older exporter.
BOOST_AUTO_TEST_CASE(exporters_of_pytorch_2) {
  const auto references = expected("pytorch/expected.txt");
  BOOST_TEST_REQUIRE(references.size() == 18u);
  std::size_t count = 0;
  for (const auto& [name, wanted] : references)
    for (const std::string how : {"", "_fixed", "_script"}) {
      const auto file = "pytorch/" + name + how;
      if (!std::filesystem::exists(folder() / (file + ".onnx")))
        continue;
      ++count;
      BOOST_TEST_CONTEXT(file)
      check_training(file, wanted, references.at(name + "_losses"));
    }
  BOOST_TEST(count == 18u);
}

BOOST_AUTO_TEST_CASE(keras_3_by_tf2onnx) {
  const auto references = expected("keras/expected.txt");
  BOOST_TEST_REQUIRE(references.size() == 8u);
  for (const std::string name : {"convolutions", "gru", "lstm", "transformer"})
    BOOST_TEST_CONTEXT(name)
  check_training("keras/" + name, references.at(name), references.at(name + "_losses"));
}

BOOST_AUTO_TEST_CASE(running_statistics_are_state) {
  const training t{"normal"};
  BOOST_TEST(differs_in_training(t.model));
  BOOST_TEST(!differs_in_training(load("image")));
  for (const auto& entry : t.g.parameters().entries()) {
    const bool running = entry.name.starts_with("norm.running_");
    BOOST_TEST((entry.kind == parameter_kind::state) == running, entry.name);
    if (running)
      BOOST_TEST(std::abs(entry.decay - 0.1) < 1e-6);
  }
  BOOST_TEST(t.g.state_updates().size() == 2u);
}

BOOST_AUTO_TEST_CASE(names_are_kept) {
  const training t{"attention"};
  std::string names;
  for (const auto& entry : t.g.parameters().entries())
    names += entry.name + to_string(entry.shape) + " ";
  // The mask of the model is not in this list, because it is not trained (see
  // onnx_weights_test.cpp).
  BOOST_TEST(names
             == "table.weight(7, 8) place.weight(5, 8) mix.weight(24, 8) mix.bias(24) "
                "head.weight(3, 8) head.bias(3) ");
}

BOOST_AUTO_TEST_CASE(structures_have_no_weights) {
  const auto whole = load("image");
  const auto bytes = whole.structure();
  BOOST_TEST(bytes.size() < read_file(folder() / "image.onnx").size() - 4 * 64 * 8);
  const auto structure = onnx_model::parse_structure(std::as_bytes(std::span{bytes}), "structure");
  BOOST_TEST(structure.structure() == bytes);
  BOOST_TEST(structure.weights().size() == whole.weights().size());
  graph a;
  graph b;
  const shape dims{shape::batch, 1, 8, 8};
  import_onnx(whole, a, {a.placeholder("x", dims)});
  import_onnx(structure, b, {b.placeholder("x", dims)});
  BOOST_TEST(to_string(a) == to_string(b));
  BOOST_TEST(contains(
    error_of([&] { onnx_model::parse(std::as_bytes(std::span{bytes}), "structure"); }),
    "structure: tensor \"conv.weight\" of shape (4, 1, 3, 3) needs 36 elements, but the file "
    "holds 0"));
}

BOOST_AUTO_TEST_CASE(damaged_files_are_refused) {
  const auto bytes = read_file(folder() / "image.onnx");
  const auto read = [](std::span<const std::byte> variant) {
    const auto model = onnx_model::parse(variant, "damaged");
    graph g;
    std::vector<expression> inputs;
    for (const auto& port : onnx_inputs(model)) {
      auto dims = port.dims;
      std::ranges::replace(dims, -1, 2);
      inputs.push_back(g.placeholder(port.name, shape{dims}, port.type));
    }
    import_onnx(model, g, inputs);
  };
  BOOST_TEST(survive_hostile_variants(bytes, read) < 40u);
}

// Batch normalization computes different values in training and in testing.
BOOST_AUTO_TEST_CASE(a_job_trains_with_what_is_for_training) {
  proto::Job job;
  job.mutable_model()->set_onnx((folder() / "normal.onnx").string());
  job.mutable_model()->set_loss(proto::SOFTMAX_CROSS_ENTROPY);
  embed_onnx(job);
  const auto dims = onnx_inputs(load("normal")).at(0).dims;
  record_shape data;
  data.dims = shape{std::vector<std::int64_t>{dims.begin() + 1, dims.end()}};
  data.label_width = classes;
  const auto model = build_model(job.model(), data);
  BOOST_TEST(!(model.training_loss == model.loss));
  BOOST_TEST(!model.graph->state_updates().empty());
}

BOOST_AUTO_TEST_SUITE_END()
