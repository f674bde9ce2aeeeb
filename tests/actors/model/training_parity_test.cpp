// Compares ten training steps with PyTorch, for the models of the example jobs and for other
// layers. The numbers of PyTorch are from references/training.py. The test and the script compute
// the same weights and data.

#include "actors/model/job_file.hpp"
#include "actors/model/model_builder.hpp"
#include "kernels/cpu/executor.hpp"
#include "tests/support/folders.hpp"

#include <algorithm>
#include <array>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>

#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(training_parity)

using namespace troupe;

namespace {

constexpr std::size_t rows = 6;

// -- weights and data, by the formulas of the script

std::vector<double> numbers(const std::string& name, std::size_t n) {
  std::uint32_t h = 0x811c9dc5;
  for (const char c : name)
    h = (h ^ static_cast<unsigned char>(c)) * 0x01000193;
  std::vector<double> result;
  for (std::uint32_t i = 0; i < n; ++i) {
    std::uint32_t x = h + i * 0x9e3779b9;
    x = (x ^ (x >> 16)) * 0x7feb352d;
    x = (x ^ (x >> 15)) * 0x846ca68b;
    result.push_back(static_cast<double>(x ^ (x >> 16)) / 2147483648.0 - 1);
  }
  return result;
}

std::vector<std::int32_t> integers(const std::string& name, std::size_t n, std::size_t below) {
  std::vector<std::int32_t> result;
  for (const double x : numbers(name, n))
    result.push_back(
      static_cast<std::int32_t>(std::floor((x + 1) / 2 * static_cast<double>(below))));
  return result;
}

double rounded(double x) {
  return static_cast<double>(static_cast<float>(x));
}

/// The initial values of a tensor.
std::vector<double> start(const layout_entry& entry) {
  auto result = numbers(entry.name, entry.size);
  const bool matrix = entry.shape.rank() > 1;
  const double scale = matrix
    ? 1 / std::sqrt(static_cast<double>(entry.size) / static_cast<double>(entry.shape[0]))
    : 0.1;
  const bool norm =
    (!matrix && entry.name.ends_with("weight")) || entry.name.ends_with("running_var");
  for (auto& x : result)
    x = (norm ? 1 : 0) + rounded(x * scale);
  return result;
}

// -- the numbers that the script recorded

struct reference {
  std::vector<double> losses;
  double testing = 0;
  /// For each tensor: the sum of its squares, and its dot product with fixed numbers.
  std::map<std::string, std::array<double, 2>> tensors;
};

reference read_reference(const std::string& name) {
  std::ifstream file{test::source_folder() / "tests/actors/model/references/training.txt"};
  reference result;
  bool wanted = false;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words{line};
    std::string first;
    words >> first;
    std::vector<double> values;
    for (std::string word; words >> word;)
      if (first == "model")
        wanted = word == name;
      else
        values.push_back(std::strtod(word.c_str(), nullptr));
    if (!wanted || first == "model")
      continue;
    if (first == "losses")
      result.losses = values;
    else if (first == "testing")
      result.testing = values.at(0);
    else
      result.tensors[first] = {values.at(0), values.at(1)};
  }
  BOOST_TEST_REQUIRE(result.losses.size() == 10u);
  return result;
}

// -- training

struct example {
  std::string name;
  std::vector<std::string> overrides;
  record_shape data;
  double rate;
};

/// A model and its weights. It is trained with the formulas of PyTorch's SGD with momentum 0.9.
/// Running statistics have their own update rule.
template <class T>
class trained_model {
public:
  trained_model(const built_model& model, const example& what)
    : what_(what), weights_(model.graph->parameters().size()), momentum_(weights_.size()),
      gradient_(weights_.size()) {
    auto options = cpu_plan_options();
    options.max_rows = rows;
    options.loss = model.training_loss;
    options.gradients = true;
    training_.emplace(std::make_shared<plan>(*model.graph, options));
    options.loss = model.loss;
    options.gradients = false;
    testing_.emplace(std::make_shared<plan>(*model.graph, options));
    for (const auto& entry : parameters().entries())
      std::ranges::transform(start(entry),
                             weights_.begin() + static_cast<std::ptrdiff_t>(entry.offset),
                             [](double x) { return static_cast<T>(x); });
  }

  const layout& parameters() const { return training_->what().parameters(); }

  std::vector<double> tensor(const layout_entry& x) const {
    const auto part = std::span{weights_}.subspan(x.offset, x.size);
    return {part.begin(), part.end()};
  }

  /// Makes a training step. Returns the mean loss before the update.
  double train(std::size_t step) {
    const double loss = run(*training_, step, gradient_);
    for (const auto& entry : parameters().entries())
      for (auto i = entry.offset; i < entry.offset + entry.size; ++i) {
        const T mean = gradient_[i] / static_cast<T>(rows);
        if (entry.kind == parameter_kind::state) {
          weights_[i] += static_cast<T>(entry.decay) * (mean - weights_[i]);
          continue;
        }
        momentum_[i] = T(0.9) * momentum_[i] + mean;
        weights_[i] -= static_cast<T>(what_.rate) * momentum_[i];
      }
    return loss;
  }

  double test(std::size_t step) { return run(*testing_, step, {}); }

private:
  double run(executor<T>& how, std::size_t step, std::span<T> gradient) {
    const auto& data = what_.data;
    const auto suffix = " " + std::to_string(step);
    const auto features = what_.name + " features" + suffix;
    const auto n = rows * data.feature_width();
    const auto tokens = integers(features, n, std::max<std::size_t>(data.vocabulary, 1));
    std::vector<T> values;
    for (const double x : numbers(features, n))
      values.push_back(static_cast<T>(rounded(x)));
    const auto labels =
      integers(what_.name + " labels" + suffix, rows * data.labels_per_record, data.label_width);
    const bool is_text = data.features == feature_kind::tokens;
    const std::array<feed<T>, 2> feeds{is_text ? feed<T>{tokens.data()} : feed<T>{values.data()},
                                       feed<T>{labels.data()}};
    std::vector<const T*> pointers;
    for (const auto& entry : parameters().entries())
      pointers.push_back(weights_.data() + entry.offset);
    run_arguments<T> arguments;
    arguments.rows = rows;
    arguments.weights = pointers;
    arguments.feeds = feeds;
    arguments.gradient = gradient;
    return how.run(arguments).loss / rows;
  }

  const example& what_;
  std::vector<T> weights_;
  std::vector<T> momentum_;
  std::vector<T> gradient_;
  std::optional<executor<T>> training_;
  std::optional<executor<T>> testing_;
};

/// Fails if two values differ by more than `tolerance` times the larger of 1 and the expected
/// value.
void check_near(double actual, double expected, double tolerance, const std::string& what) {
  const double distance = std::fabs(actual - expected) / std::max(1.0, std::fabs(expected));
  BOOST_TEST(distance <= tolerance, what << ": " << actual << " instead of " << expected);
}

template <class T>
void check(const example& what, const built_model& model, double tolerance) {
  const auto expected = read_reference(what.name);
  trained_model<T> actual{model, what};
  for (std::size_t step = 0; step < expected.losses.size(); ++step)
    check_near(actual.train(step), expected.losses[step], tolerance,
               what.name + ", loss of step " + std::to_string(step));
  check_near(actual.test(expected.losses.size() - 1), expected.testing, tolerance,
             what.name + ", testing");
  BOOST_TEST(actual.parameters().entries().size() == expected.tensors.size());
  for (const auto& entry : actual.parameters().entries()) {
    BOOST_TEST_REQUIRE(expected.tensors.contains(entry.name), entry.name);
    const auto w = actual.tensor(entry);
    const auto factors = numbers("check " + entry.name, w.size());
    double squares = 0;
    double product = 0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      squares += w[i] * w[i];
      product += w[i] * factors[i];
    }
    check_near(squares, expected.tensors.at(entry.name)[0], tolerance, entry.name + ", squares");
    check_near(product, expected.tensors.at(entry.name)[1], tolerance, entry.name + ", product");
  }
}

/// Trains a model in double and in float, and compares with PyTorch. In double, only the order of
/// additions differs. In float, a few hundred roundings of 6e-8 each accumulate over ten steps.
void check(const example& what, double float_tolerance) {
  auto job = load_job(test::source_folder() / "apps/examples" / (what.name + ".textproto"));
  for (const auto& assignment : what.overrides)
    apply_override(job, assignment);
  const auto model = build_model(job.model(), what.data);
  check<double>(what, model, 1e-9);
  check<float>(what, model, float_tolerance);
}

/// Trains a model of layers that no example job has. It has one output per class.
void check_layers(const example& what, const std::string& layers) {
  const auto job = parse_job("model { " + layers + " loss: SOFTMAX_CROSS_ENTROPY }", what.name);
  const auto model = build_model(job.model(), what.data);
  check<double>(what, model, 1e-9);
  check<float>(what, model, 1e-5);
}

record_shape images() {
  record_shape result;
  result.dims = {1, 28, 28};
  result.label_width = 10;
  return result;
}

record_shape text() {
  record_shape result;
  result.features = feature_kind::tokens;
  result.dims = {9};
  result.vocabulary = result.label_width = 11;
  result.labels_per_record = 9;
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(mlp) {
  check({"mnist_mlp",
         {"model.layer[0].dense.units=12", "model.layer[1].dense.units=8"},
         images(),
         0.05},
        1e-5);
}

BOOST_AUTO_TEST_CASE(lenet) {
  check(
    {"mnist_lenet",
     {"model.layer[0].conv2d.filters=3", "model.layer[2].conv2d.filters=4",
      "model.layer[4].dense.units=9", "model.layer[5].dense.units=8", "model.label_smoothing=0.1"},
     images(),
     0.05},
    1e-5);
}

BOOST_AUTO_TEST_CASE(resnet) {
  std::vector<std::string> overrides{"model.layer[0].conv2d.filters=4"};
  const auto stage = [&](int layer, int filters, bool shortcut) {
    for (int i : {0, 3, 5})
      if (i != 5 || shortcut)
        overrides.push_back("model.layer[" + std::to_string(layer) + "].block.layer["
                            + std::to_string(i) + "].conv2d.filters=" + std::to_string(filters));
  };
  stage(3, 4, false);
  stage(4, 6, true);
  stage(5, 8, true);
  check({"digits_resnet", overrides, images(), 0.05}, 1e-4);
}

BOOST_AUTO_TEST_CASE(recurrent_networks) {
  for (const std::string kind : {"lstm", "gru"}) {
    std::vector<std::string> overrides{"model.layer[0].embedding.width=6",
                                       "model.layer[1]." + kind + ".hidden=7",
                                       "model.layer[2].dense.units=11"};
    if (kind == "gru")
      overrides.emplace_back("model.ignored_label=3");
    check({"shakespeare_" + kind, overrides, text(), 0.5}, 1e-5);
  }
}

BOOST_AUTO_TEST_CASE(gpt) {
  check({"shakespeare_gpt",
         {"model.layer[0].embedding.width=8", "model.layer[2].block.times=2",
          "model.layer[2].block.layer[1].attention.heads=2",
          "model.layer[2].block.layer[4].dense.units=32",
          "model.layer[2].block.layer[5].dense.units=8", "model.layer[4].dense.units=11"},
         text(),
         0.1},
        1e-5);
}

BOOST_AUTO_TEST_CASE(image_layers) {
  check_layers({"image_layers", {}, images(), 0.02}, R"(
    layer { name: "conv_1" conv2d { filters: 4 kernel: 3 padding: 2 dilation: 2 activation: SILU } }
    layer { max_pool { kernel: 3 stride: 2 ceil_mode: true } }
    layer { name: "norm_1" group_norm { groups: 2 } }
    layer { name: "conv_2" conv2d { filters: 6 kernel: [3, 2] stride: 2 padding: [2, 1]
                                    dilation: [2, 3] groups: 2 activation: SILU } }
    layer { average_pool { kernel: 4 stride: 3 padding: 1 ceil_mode: true } }
    layer { name: "norm_2" group_norm { groups: 3 epsilon: 0.01 } }
    layer { name: "up_1" conv_transpose2d { filters: 4 kernel: 3 stride: 2 padding: 1
                                            output_padding: 1 groups: 2 activation: RELU } }
    layer { name: "up_2" conv_transpose2d { filters: 3 kernel: [2, 3] stride: [3, 1]
                                            padding: [0, 2] output_padding: [2, 0]
                                            dilation: [1, 2] bias: false activation: TANH } }
    layer { name: "head" dense { units: 10 } })");
}

BOOST_AUTO_TEST_CASE(attention_layers) {
  auto data = text();
  data.labels_per_record = 1;
  check_layers({"attention_layers", {}, data, 0.1}, R"(
    layer { name: "embedding" embedding { width: 6 } }
    layer { name: "norm_1" rms_norm {} }
    layer { name: "encoder" attention { heads: 2 causal: false } }
    layer { name: "x" add {} input: "embedding" input: "encoder" }
    layer { name: "norm_2" rms_norm { epsilon: 0.01 } }
    layer { name: "half" slice { end: 4 } }
    layer { name: "cross" attention { heads: 3 causal: false } input: "half" input: "x" }
    layer { name: "plain" attention { heads: 1 bias: false causal: false } input: "half" }
    layer { name: "sum" add {} input: "cross" input: "plain" }
    layer { name: "gate" dense { units: 12 activation: SILU } }
    layer { name: "mean" mean { axis: 1 } }
    layer { name: "head" dense { units: 11 } })");
}

BOOST_AUTO_TEST_CASE(bidirectional_layers) {
  auto data = images();
  data.dims = {7, 5};
  check_layers({"bidirectional_layers", {}, data, 0.2}, R"(
    layer { name: "rnn" rnn { hidden: 4 bidirectional: true } }
    layer { name: "lstm" lstm { hidden: 3 layers: 2 bidirectional: true } }
    layer { name: "gru" gru { hidden: 4 layers: 2 bidirectional: true last: true } }
    layer { name: "head" dense { units: 10 } })");
}

BOOST_AUTO_TEST_SUITE_END()
