#include "kernels/cpu/executor.hpp"
#include "kernels/cpu/plan_cost.hpp"
#include "kernels/graph/channel_operations.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"
#include "tests/kernels/numeric.hpp"
#include "tests/support/allocations.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::test;

// Plans that compute in 16 bits and keep weights in float32 (mixed precision), on the CPU.

namespace {

constexpr dtype both[] = {dtype::bfloat16, dtype::float16};

/// Half of the distance between 1 and the next number of this type.
double rounding_of(dtype type) {
  return type == dtype::bfloat16 ? 0x1p-8 : type == dtype::float16 ? 0x1p-11 : 0x1p-24;
}

struct outcome {
  double loss = 0;
  std::vector<float> gradient;
  std::vector<float> fetched;
};

struct how_to_run {
  dtype type = dtype::float32;
  std::size_t threads = 1;
  float scale = 0; ///< 0: without plan_options::scale_loss
};

/// A graph with random inputs and weights, which can run in any precision.
struct trial {
  trial() = default;
  trial(const trial&) = delete; // expressions point to the graph
  trial& operator=(const trial&) = delete;

  graph g;
  expression y;
  expression loss;

  std::shared_ptr<const plan> plan_for(const how_to_run& how, std::size_t rows) const {
    auto options = cpu_plan_options();
    options.max_rows = rows;
    options.loss = loss;
    options.gradients = true;
    options.fetches = {y};
    options.precision = how.type;
    options.scale_loss = how.scale != 0;
    return std::make_shared<const plan>(g, options);
  }

  outcome run(const leaves& values, const how_to_run& how) const {
    executor<float> machine(plan_for(how, std::max<std::size_t>(values.rows, 1)), how.threads);
    return run(values, how, machine);
  }

  outcome run(const leaves& values, const how_to_run& how, executor<float>& machine) const {
    std::vector<std::vector<float>> weights;
    std::vector<const float*> pointers;
    for (const auto& x : values.weights)
      pointers.push_back(weights.emplace_back(x.begin(), x.end()).data());
    for (std::size_t i = 0; i < weights.size(); ++i)
      pointers[i] = weights[i].data();
    std::vector<std::vector<float>> numbers;
    std::vector<std::vector<std::int32_t>> labels;
    for (const auto& x : values.feeds) {
      numbers.emplace_back(x.begin(), x.end());
      labels.emplace_back(x.begin(), x.end());
    }
    std::vector<feed<float>> feeds;
    for (std::size_t i = 0; i < numbers.size(); ++i)
      feeds.push_back(g.at(g.placeholders()[i]).type == dtype::int32
                        ? feed<float>{labels[i].data()}
                        : feed<float>{numbers[i].data()});
    if (how.scale != 0)
      feeds.emplace_back(&how.scale);
    outcome result;
    result.gradient.resize(g.parameters().size());
    run_arguments<float> arguments;
    arguments.rows = values.rows;
    arguments.weights = pointers;
    arguments.feeds = feeds;
    arguments.gradient = result.gradient;
    const auto before = allocations();
    result.loss = machine.run(arguments).loss;
    BOOST_TEST(allocations() == before);
    const auto fetched = machine.fetched(0);
    result.fetched.assign(fetched.begin(), fetched.end());
    return result;
  }
};

double norm(const std::vector<double>& x) {
  double result = 0;
  for (const double y : x)
    result += y * y;
  return std::sqrt(result);
}

/// The norm of the difference, divided by the norm of the expected vector.
double distance(const std::vector<float>& actual, const std::vector<double>& expected) {
  std::vector<double> difference;
  for (std::size_t i = 0; i < expected.size(); ++i)
    difference.push_back(static_cast<double>(actual[i]) - expected[i]);
  return norm(difference) / std::max(norm(expected), 1e-30);
}

std::vector<double> doubles(const std::vector<float>& x) {
  return {x.begin(), x.end()};
}

using builder = std::function<expression(graph&)>;

struct operation_case {
  std::string name;
  builder build;
};

expression rows(graph& g) {
  return g.placeholder("x", {shape::batch, 12});
}

/// A layer that computes in 16 bits. Its output is the input of the tested operation.
expression narrow_rows(graph& g) {
  return dense(rows(g), g.variable("w", {12, 12}));
}

expression image(graph& g) {
  return conv2d(g.placeholder("x", {shape::batch, 4, 8, 6}), g.variable("w", {6, 4, 3, 3}),
                {3, 3, 1, 1, 1, 1});
}

const std::vector<operation_case>& operation_cases() {
  static const std::vector<operation_case> all{
    {"matmul", narrow_rows},
    {"bias and relu",
     [](graph& g) { return relu(add_bias(narrow_rows(g), g.variable("b", {12}))); }},
    {"two products",
     [](graph& g) {
       return matmul(tanh(narrow_rows(g)), g.variable("v", {12, 5}));
     }},
    {"residual",
     [](graph& g) {
       const auto x = narrow_rows(g);
       return x + gelu(dense(x, g.variable("v", {12, 12})));
     }},
    {"mixed sum",
     [](graph& g) {
       const auto x = rows(g);
       return sigmoid(multiply(x, dense(x, g.variable("v", {12, 12}))));
     }},
    {"exp and log", [](graph& g) { return log(offset(exp(scale(narrow_rows(g), 0.1)), 1)); }},
    {"softmax", [](graph& g) { return softmax(narrow_rows(g)); }},
    {"layer normalization",
     [](graph& g) {
       return multiply_rows(normalize_rows(narrow_rows(g), 1e-5), g.variable("gain", {12}));
     }},
    // These numbers are so large that their squares exceed float16.
    {"root mean square of large numbers",
     [](graph& g) { return rms_norm(scale(narrow_rows(g), 2000), g.variable("gain", {12})); }},
    {"dropout", [](graph& g) { return dropout(narrow_rows(g), 0.3, "drop"); }},
    {"moves",
     [](graph& g) {
       const auto x = reshape(narrow_rows(g), {shape::batch, 3, 4});
       return concat({transpose(x, {0, 2, 1}), reshape(x, {shape::batch, 4, 3})}, 2);
     }},
    {"attention",
     [](graph& g) {
       const auto x = reshape(narrow_rows(g), {shape::batch, 3, 4});
       return batched_matmul(softmax(batched_matmul(x, x, false, true)), x);
     }},
    {"attention in one pass",
     [](graph& g) {
       const auto x = reshape(narrow_rows(g), {shape::batch, 3, 4});
       return causal_attention(x, x, x, 2);
     }},
    {"conv2d", image},
    {"conv2d, bias and tanh",
     [](graph& g) { return tanh(add_channel_bias(image(g), g.variable("b", {6}))); }},
    {"two convolutions",
     [](graph& g) {
       return conv2d(tanh(image(g)), g.variable("v", {4, 3, 3, 3}), {3, 3, 1, 1, 1, 1, 2});
     }},
    {"average_pool",
     [](graph& g) {
       return average_pool(image(g), {2, 2, 2, 2});
     }},
    {"batch normalization",
     [](graph& g) {
       return batch_norm(image(g),
                         {g.variable("gain", {6}), g.variable("bias", {6}),
                          g.variable("mean", {6}, {}, parameter_kind::state),
                          g.variable("variance", {6}, {}, parameter_kind::state)},
                         1e-5);
     }},
  };
  return all;
}

void build_classifier(trial& result) {
  auto& g = result.g;
  const auto x = g.placeholder("x", {shape::batch, 37});
  const auto labels = g.placeholder("labels", {shape::batch}, dtype::int32);
  const auto h =
    dense_layer(dense_layer(x, "one", 64, activation::relu), "two", 48, activation::relu);
  result.y = dense_layer(h, "three", 5);
  result.loss = softmax_cross_entropy(result.y, labels);
}

} // namespace

BOOST_AUTO_TEST_SUITE(mixed_precision)

// Compares results in 16 bits with plain loops in double, and with the executor in double.
// Tolerance: a value is rounded to 16 bits a few times, and sums average out earlier rounding
// errors. So values may differ by a few roundings, and gradients by a few more.
BOOST_AUTO_TEST_CASE(operations_against_a_reference_in_double) {
  for (const auto& x : operation_cases())
    for (const auto type : both) {
      trial t;
      t.y = x.build(t.g);
      t.loss = to_scalar(t.y);
      const auto values = random_leaves(t.g, 9);
      const auto what = x.name + " in " + std::string(to_string(type));
      const auto exact = execute<double>(t.g, values, t.loss, {t.y}, true);
      const auto mixed = t.run(values, {.type = type});
      if (x.name != "dropout") // the reference has another mask (a mask depends on the seed)
        BOOST_TEST(distance(mixed.fetched, reference_value(t.g, t.y.id(), values))
                     <= 4 * rounding_of(type),
                   what);
      BOOST_TEST(distance(mixed.fetched, exact.fetches[0]) <= 4 * rounding_of(type), what);
      // Equal results would mean that the plan did not compute in 16 bits.
      BOOST_TEST(distance(mixed.fetched, exact.fetches[0]) >= rounding_of(type) / 100, what);
      BOOST_TEST(distance(mixed.gradient, exact.gradient) <= 16 * rounding_of(type), what);
    }
}

// Each step rounds its result exactly once. Operands are small whole numbers, so that sums are
// exact in float32.
BOOST_AUTO_TEST_CASE(each_step_rounds_its_result_once) {
  for (const auto type : both) {
    trial t;
    const auto x = t.g.placeholder("x", {shape::batch, 8});
    const auto product = dense(x, t.g.variable("w", {6, 8}));
    t.y = relu(add_bias(product, t.g.variable("b", {6})));
    t.loss = sum(t.y);
    auto values = random_leaves(t.g, 5);
    for (auto* all : {&values.feeds[0], &values.weights[0], &values.weights[1]})
      for (auto& v : *all)
        v = std::round(40 * v);
    const auto exact = reference_value(t.g, t.y.id(), values);
    const auto mixed = t.run(values, {.type = type});
    std::size_t rounded_results = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      BOOST_TEST(static_cast<double>(mixed.fetched[i]) == rounded(type, exact[i]));
      rounded_results += rounded(type, exact[i]) != exact[i] ? 1 : 0;
    }
    BOOST_TEST(rounded_results > 0U);
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_weights_are_not_rounded) {
  trial t;
  const auto x = t.g.placeholder("x", {shape::batch, 3});
  t.y = dense(x, t.g.variable("w", {2, 3}));
  t.loss = sum(t.y);
  auto values = random_leaves(t.g, 300);
  for (auto& v : values.feeds[0])
    v = std::round(100 * v);
  for (auto& v : values.feeds[0])
    v = rounded(dtype::bfloat16, v);
  const auto exact = execute<double>(t.g, values, t.loss, {t.y}, true);
  const auto mixed = t.run(values, {.type = dtype::bfloat16});
  for (std::size_t i = 0; i < exact.gradient.size(); ++i)
    BOOST_TEST(static_cast<double>(mixed.gradient[i]) == exact.gradient[i]);
}

BOOST_AUTO_TEST_CASE(values_of_16_bits_take_half_the_memory) {
  trial t;
  build_classifier(t);
  const auto wide = t.plan_for({}, 256);
  const auto narrow = t.plan_for({.type = dtype::bfloat16}, 256);
  BOOST_TEST((narrow->precision() == dtype::bfloat16));
  const auto bytes = [](const plan& what) { return memory_of(what).needed; };
  BOOST_TEST(bytes(*narrow) < 0.75 * static_cast<double>(bytes(*wide)));
  BOOST_TEST(memory_of(*narrow).arena >= bytes(*narrow));
  BOOST_TEST((narrow->buckets().size() == wide->buckets().size()));
}

BOOST_AUTO_TEST_CASE(the_number_of_threads_changes_no_bits) {
  trial t;
  build_classifier(t);
  const auto values = random_leaves(t.g, 600, 5);
  const auto one = t.run(values, {.type = dtype::bfloat16});
  const auto three = t.run(values, {.type = dtype::bfloat16, .threads = 3});
  BOOST_TEST(same_bits(one.gradient, three.gradient));
  BOOST_TEST(one.loss == three.loss);
  // Without samples, the gradient is 0.
  const auto nothing = t.run(random_leaves(t.g, 0, 5), {.type = dtype::bfloat16});
  BOOST_TEST(std::ranges::all_of(nothing.gradient, [](float x) { return x == 0; }));
}

namespace {

/// A model in which the gradients before the last layer are about 1e-8, which float16 rounds to 0.
void build_tiny_gradients(trial& t) {
  const auto x = t.g.placeholder("x", {shape::batch, 16});
  const auto h = dense(x, t.g.variable("one", {16, 16}));
  t.y = dense(tanh(scale(h, 0.1)), t.g.variable("two", {4, 16}));
  t.loss = scale(sum(t.y), 1e-8);
}

} // namespace

BOOST_AUTO_TEST_CASE(a_scale_rescues_gradients_from_underflow) {
  trial t;
  build_tiny_gradients(t);
  const auto values = random_leaves(t.g, 32);
  const auto wide = doubles(t.run(values, {}).gradient);
  const auto plain = t.run(values, {.type = dtype::float16});
  BOOST_TEST(std::ranges::all_of(plain.gradient, [](float x) { return x == 0; }));
  auto scaled = t.run(values, {.type = dtype::float16, .scale = 65536});
  BOOST_TEST(scaled.loss == plain.loss);
  for (auto& x : scaled.gradient)
    x /= 65536;
  BOOST_TEST(distance(scaled.gradient, wide) <= 0.01);
  // bfloat16 has the range of float32, so its gradients need no scale.
  BOOST_TEST(distance(t.run(values, {.type = dtype::bfloat16}).gradient, wide) <= 0.03);
}

BOOST_AUTO_TEST_CASE(a_scale_that_is_too_large_overflows) {
  trial t;
  build_tiny_gradients(t);
  const auto values = random_leaves(t.g, 32);
  const auto run = t.run(values, {.type = dtype::float16, .scale = 0x1p50F});
  BOOST_TEST(std::isfinite(run.loss));
  BOOST_TEST(!std::ranges::all_of(run.gradient, [](float x) { return std::isfinite(x); }));
}

BOOST_AUTO_TEST_CASE(scales_do_not_change_statistics) {
  trial t;
  const auto x = t.g.placeholder("x", {shape::batch, 4});
  const auto state = t.g.variable("mean", {4}, {}, parameter_kind::state);
  t.g.update_state(state, sum_leading(x));
  t.y = dense(x, t.g.variable("w", {2, 4}));
  t.loss = sum(t.y);
  const auto values = random_leaves(t.g, 8);
  const auto plain = t.run(values, {.type = dtype::float16});
  const auto scaled = t.run(values, {.type = dtype::float16, .scale = 4});
  for (std::size_t i = 0; i < 4; ++i)
    BOOST_TEST(scaled.gradient[i] == plain.gradient[i]);
  for (std::size_t i = 4; i < plain.gradient.size(); ++i)
    BOOST_TEST(scaled.gradient[i] == 4 * plain.gradient[i]);
}

BOOST_AUTO_TEST_CASE(the_origin_of_an_overflow) {
  trial t;
  const auto x = t.g.placeholder("x", {shape::batch, 4});
  t.y = dense(x, t.g.variable("w", {2, 4}));
  t.g.rename(t.y, "too_large");
  t.loss = sum(t.y);
  executor<float> machine(t.plan_for({.type = dtype::float16}, 2));
  const std::vector<float> w(8, 300);
  const std::vector<float> features(8, 300);
  const std::vector<const float*> weights{w.data()};
  const std::vector<feed<float>> feeds{features.data()};
  std::vector<float> gradient(8);
  run_arguments<float> arguments;
  arguments.rows = 2;
  arguments.weights = weights;
  arguments.feeds = feeds;
  arguments.gradient = gradient;
  BOOST_TEST(!std::isfinite(machine.run(arguments).loss));
  BOOST_TEST(machine.find_not_finite(arguments) == "result too_large (computed with weights w)");
}

BOOST_AUTO_TEST_SUITE_END()
