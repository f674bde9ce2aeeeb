#include "apps/troupe/bench/runner.hpp"

#include "apps/troupe/bench/statistics.hpp"
#include "kernels/cpu/executor.hpp"
#include "kernels/graph/initializers.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/random.hpp"
#include "kernels/range.hpp"

namespace troupe::bench {

namespace {

constexpr std::uint64_t seed = 1;

/// A graph of the model with its inputs, labels and loss. A plan is made from it.
struct description {
  explicit description(const work& what) {
    const auto width = static_cast<std::int64_t>(what.inputs);
    const auto positions = static_cast<std::int64_t>(what.labels);
    const auto inputs = g.placeholder("inputs", {shape::batch, width},
                                      what.takes_ids ? dtype::int32 : dtype::float32);
    const auto labels = g.placeholder(
      "labels", what.labels == 1 ? shape{shape::batch} : shape{shape::batch, positions},
      dtype::int32);
    loss = softmax_cross_entropy(what.build(inputs), labels);
  }

  graph g;
  expression loss;
};

} // namespace

material::material(const work& what) : parameters(description{what}.g.parameters()) {
  weights.resize(parameters.size());
  initialize(parameters, {0, parameters.size()}, seed, weights);
  random_stream random{seed, "bench"};
  const auto samples = batches * what.batch;
  const auto below = [&](std::size_t n) { return static_cast<std::int32_t>(random.below(n)); };
  if (what.takes_ids) {
    ids.resize(samples * what.inputs);
    for (auto& x : ids)
      x = below(what.classes);
  } else {
    features.resize(samples * what.inputs);
    for (auto& x : features)
      x = static_cast<float>(random.normal());
  }
  labels.resize(samples * what.labels);
  for (auto& x : labels)
    x = below(what.classes);
}

std::shared_ptr<const plan> training_plan(const work& what, plan_options options) {
  const description model{what};
  options.loss = model.loss;
  options.gradients = true;
  return std::make_shared<const plan>(model.g, options);
}

std::array<feed<float>, 2> feeds_of(const work& what, const material& data, std::size_t batch) {
  const auto first = batch * what.batch;
  const feed<float> inputs = what.takes_ids
    ? feed<float>{data.ids.data() + first * what.inputs}
    : feed<float>{data.features.data() + first * what.inputs};
  return {inputs, data.labels.data() + first * what.labels};
}

namespace {

plan_options options_for(const work& what, dtype precision) {
  auto result = cpu_plan_options();
  result.max_rows = what.batch;
  result.precision = precision;
  return result;
}

} // namespace

runner::runner(const work& what, const material& data, std::size_t threads, passing how,
               dtype precision)
  : what_(what), data_(data), how_(how), weights_(data.weights), gradient_(weights_.size()),
    state_(weights_.size() * what.rule.slots()),
    executor_(training_plan(what, options_for(what, precision)), threads) {
  for (const auto& entry : data.parameters.entries())
    pointers_.push_back(weights_.data() + entry.offset);
}

double runner::step(function_ref<void(std::size_t)> on_instruction) {
  const auto feeds = feeds_of(what_, data_, steps_ % batches);
  run_arguments<float> arguments;
  arguments.rows = what_.batch;
  arguments.weights = pointers_;
  arguments.feeds = feeds;
  arguments.gradient = gradient_;
  arguments.on_instruction = on_instruction;
  const auto result = executor_.run(arguments);
  const auto samples = static_cast<double>(what_.batch);
  ++steps_;
  // As in run(), the update uses one thread.
  update_arguments<float> update_of_all{weights_, gradient_, state_, weights_};
  update_of_all.rate = what_.rate;
  update_of_all.scale = 1 / samples;
  update_of_all.step = steps_;
  update_of_all.stride = weights_.size();
  update<float>(what_.rule, update_of_all);
  return result.loss / samples;
}

round runner::run(std::size_t steps) {
  round result;
  result.losses.reserve(steps);
  const stopwatch watch(how_);
  for (std::size_t i = 0; i < steps; ++i)
    result.losses.push_back(step({}));
  result.seconds = watch.seconds();
  return result;
}

std::vector<std::string> runner::names() const {
  std::vector<std::string> result;
  for (const auto& x : executor_.what().instructions()) {
    const auto& made = x.output.exists() ? x.output : x.gradient;
    std::string text{to_string(x.op)};
    for (const auto& input : x.inputs)
      text += ' ' + to_string(input.shape);
    result.push_back(text + " -> " + made.name + ' ' + to_string(made.shape));
  }
  result.emplace_back("update of the weights");
  return result;
}

std::vector<double> runner::profile(std::size_t steps) {
  std::vector<std::vector<double>> times(executor_.what().instructions().size() + 1);
  for (auto& x : times)
    x.reserve(steps);
  for (std::size_t i = 0; i < steps; ++i) {
    stopwatch watch(how_);
    const auto add = [&](std::size_t instruction) { times[instruction].push_back(watch.lap()); };
    step(add);
    add(times.size() - 1);
  }
  std::vector<double> result;
  for (const auto& x : times)
    result.push_back(statistics{x}.median);
  return result;
}

} // namespace troupe::bench
