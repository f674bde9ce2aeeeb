#include "actors/model/model_tester.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t most_rows = 256;

/// A test may always use this much memory. Small models are therefore tested in large groups, even
/// if they train with a small batch.
constexpr std::size_t small_bytes = std::size_t{64} << 20;

/// Bytes that the activations and the records themselves take.
std::size_t bytes_of(const plan& x, const record_shape& record) {
  return x.arena_elements() * sizeof(float) + record_buffer::memory_bytes(record, x.max_rows());
}

/// The plan of a tester on the CPU.
std::shared_ptr<const plan> testing_plan(const job_context& context) {
  return model_tester::plan_of(context, cpu_fusion());
}

feed<float> features_of(const feature_batch& x) {
  if (!x.tokens.empty())
    return x.tokens.data();
  if (!x.sparse.row_starts.empty())
    return sparse_rows<float>{x.sparse.row_starts.data(), x.sparse.columns.data(),
                              x.sparse.values.data()};
  return x.numbers.data();
}

/// Counts the elements of targets that are 0 or 1, and the outputs on the right side. An output is
/// the logit of 1. If another target occurs, nothing is counted any more.
struct element_counter {
  bool counts = false;
  std::size_t correct = 0;
  std::size_t counted = 0;

  void add(std::span<const float> targets, std::span<const float> outputs) {
    counts = counts && targets.size() == outputs.size()
      && std::ranges::all_of(targets, [](float x) { return x == 0 || x == 1; });
    for (std::size_t i = 0; counts && i < targets.size(); ++i)
      correct += (outputs[i] > 0) == (targets[i] == 1) ? 1 : 0;
    counted += targets.size();
  }
};

feed<float> labels_of(const label_batch& x) {
  return x.classes.empty() ? feed<float>{x.targets.data()} : feed<float>{x.classes.data()};
}

} // namespace

model_tester::model_tester(const job_context& context)
  : model_tester(context,
                 make_cpu_executor(testing_plan(context), context.job.runtime().threads())) {}

model_tester::model_tester(const job_context& context, std::unique_ptr<device_executor> on)
  : executor_(std::move(on)), pointers_(context.parameters().entries().size()),
    record_(context.data), records_(record_, executor_->what().max_rows()), measurer_(context.job),
    binary_(context.job.model().loss() == proto::BINARY_CROSS_ENTROPY
            && record_.labels == label_kind::targets) {}

// Chooses the number of rows so that a test on the CPU needs at most the memory of a training step
// (or `small_bytes`, if that is more). The number is the same on all machines and devices. With
// another number, other groups of records would be added up, and losses would differ in their last
// bits.
std::shared_ptr<const plan> model_tester::plan_of(const job_context& context,
                                                  const fusion_table& fusion) {
  const auto& model = context.model;
  auto options = cpu_plan_options();
  options.loss = model.loss;
  options.correct = model.correct;
  options.fetches = {model.output};
  const auto limit = std::max(small_bytes, bytes_of(*context.training, context.data));
  for (options.max_rows = most_rows;; options.max_rows /= 2) {
    auto result = std::make_shared<plan>(*model.graph, options);
    if (options.max_rows > 1 && bytes_of(*result, context.data) > limit)
      continue;
    if (&fusion == options.fusion)
      return result;
    options.fusion = &fusion;
    return std::make_shared<plan>(*model.graph, options);
  }
}

test_result model_tester::run(std::span<const float> weights, const dataset& set,
                              function_ref<void(const tested_records&)> listener) {
  const auto& parameters = executor_->what().parameters();
  if (weights.size() != parameters.size() || set.record() != record_)
    throw std::invalid_argument("model_tester: weights or data of another model");
  for (std::size_t i = 0; i < pointers_.size(); ++i)
    pointers_[i] = weights.data() + parameters.entries()[i].offset;
  auto measures = measurer_;
  element_counter elements{binary_};
  double loss = 0;
  std::size_t correct = 0;
  std::size_t counted = 0;
  for (std::uint64_t first = 0; first < set.size(); first += records_.most()) {
    const auto rows = std::min<std::uint64_t>(records_.most(), set.size() - first);
    records_.read(set, first, rows);
    const auto& features = records_.features();
    const auto& labels = records_.labels();
    const std::array<feed<float>, 2> feeds{features_of(features), labels_of(labels)};
    run_arguments<float> arguments;
    arguments.rows = rows;
    if (first == 0 || !executor_->keeps_weights())
      arguments.weights = pointers_;
    arguments.feeds = feeds;
    const auto result = executor_->advance(arguments).value();
    loss += result.loss;
    correct += result.correct;
    counted += result.counted;
    if (measures.wanted())
      measures.add(labels.classes, executor_->fetched(0));
    if (binary_)
      elements.add(labels.targets, executor_->fetched(0));
    if (!listener)
      continue;
    tested_records tested;
    tested.first = first;
    tested.count = rows;
    tested.features = features.numbers;
    tested.tokens = features.tokens;
    tested.classes = labels.classes;
    tested.targets = labels.targets;
    tested.outputs = executor_->fetched(0);
    listener(tested);
  }
  const auto n = static_cast<double>(std::max<std::uint64_t>(set.size(), 1));
  test_result result{loss / n, std::nullopt, measures.result(loss / n)};
  if (set.record().labels == label_kind::classes)
    result.accuracy =
      static_cast<double>(correct) / static_cast<double>(std::max<std::size_t>(counted, 1));
  if (elements.counts && elements.counted > 0)
    result.accuracy = static_cast<double>(elements.correct) / static_cast<double>(elements.counted);
  return result;
}

std::size_t model_tester::memory_bytes(const job_context& context, bool on_cpu) {
  const auto what = testing_plan(context);
  const auto threads = context.job.runtime().threads();
  return (on_cpu ? executor<float>::memory_bytes(*what, threads) : 0)
    + record_buffer::memory_bytes(context.data, what->max_rows());
}

} // namespace troupe
