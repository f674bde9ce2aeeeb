#include "actors/model/model_tester.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <stdexcept>

namespace troupe {

namespace {

constexpr std::size_t test_rows = 256;

std::shared_ptr<const plan> testing_plan(const built_model& model) {
  plan_options options;
  options.max_rows = test_rows;
  options.loss = model.loss;
  options.correct = model.correct;
  options.fetches = {model.output};
  return std::make_shared<plan>(*model.graph, options);
}

} // namespace

model_tester::model_tester(const job_context& context)
  : executor_(testing_plan(context.model), context.job.runtime().threads()),
    pointers_(context.parameters().entries().size()), record_(context.data) {
  if (record_.features == feature_kind::tokens)
    tokens_.resize(test_rows * record_.feature_width());
  else if (record_.features == feature_kind::numbers)
    features_.resize(test_rows * record_.feature_width());
  if (record_.labels == label_kind::classes)
    classes_.resize(test_rows * record_.label_elements());
  else
    targets_.resize(test_rows * record_.label_elements());
}

/// Where the features of records_ go.
feature_batch model_tester::room_for(const dataset& set, std::size_t rows) {
  const auto n = rows * record_.feature_width();
  feature_batch result;
  switch (record_.features) {
  case feature_kind::numbers:
    result.numbers = std::span{features_}.first(n);
    break;
  case feature_kind::tokens:
    result.tokens = std::span{tokens_}.first(n);
    break;
  case feature_kind::sparse:
    row_starts_.assign(rows + 1, 0);
    columns_.resize(set.entries(records_));
    features_.resize(columns_.size());
    result.sparse = {row_starts_, columns_, features_};
    break;
  }
  return result;
}

feed<float> model_tester::fed_features() const {
  switch (record_.features) {
  case feature_kind::tokens:
    return tokens_.data();
  case feature_kind::sparse:
    return sparse_rows<float>{row_starts_.data(), columns_.data(), features_.data()};
  case feature_kind::numbers:
    break;
  }
  return features_.data();
}

test_result model_tester::run(std::span<const float> weights, const dataset& set,
                              function_ref<void(const tested_records&)> listener) {
  const auto& parameters = executor_.what().parameters();
  if (weights.size() != parameters.size() || set.record() != record_)
    throw std::invalid_argument("model_tester: weights or data of another model");
  for (std::size_t i = 0; i < pointers_.size(); ++i)
    pointers_[i] = weights.data() + parameters.entries()[i].offset;
  double loss = 0;
  std::size_t correct = 0;
  std::size_t counted = 0;
  for (std::uint64_t first = 0; first < set.size(); first += test_rows) {
    const auto rows = std::min<std::uint64_t>(test_rows, set.size() - first);
    records_.resize(rows);
    std::iota(records_.begin(), records_.end(), first);
    tested_records tested;
    tested.first = first;
    tested.count = rows;
    const auto some = [rows](auto& buffer) {
      return std::span{buffer}.first(buffer.size() / test_rows * rows);
    };
    const auto features = room_for(set, rows);
    const label_batch labels{some(classes_), some(targets_)};
    set.read(records_, features, labels);
    const std::array<feed<float>, 2> feeds{fed_features(),
                                           classes_.empty() ? feed<float>{targets_.data()}
                                                            : feed<float>{classes_.data()}};
    run_arguments<float> arguments;
    arguments.rows = rows;
    arguments.weights = pointers_;
    arguments.feeds = feeds;
    const auto result = executor_.run(arguments);
    loss += result.loss;
    correct += result.correct;
    counted += result.counted;
    if (!listener)
      continue;
    tested.features = features.numbers;
    tested.tokens = features.tokens;
    tested.classes = labels.classes;
    tested.targets = labels.targets;
    tested.outputs = executor_.fetched(0);
    listener(tested);
  }
  const auto n = static_cast<double>(std::max<std::uint64_t>(set.size(), 1));
  test_result result{loss / n, std::nullopt};
  if (!classes_.empty())
    result.accuracy =
      static_cast<double>(correct) / static_cast<double>(std::max<std::size_t>(counted, 1));
  return result;
}

std::size_t model_tester::memory_bytes() const noexcept {
  return executor_.memory_bytes() + features_.size() * sizeof(float)
    + targets_.size() * sizeof(float) + (tokens_.size() + classes_.size()) * sizeof(std::int32_t);
}

} // namespace troupe
