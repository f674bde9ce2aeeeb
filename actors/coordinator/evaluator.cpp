#include "actors/coordinator/evaluator.hpp"

#include "actors/model/sha256.hpp"
#include "kernels/data/table.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace troupe {

namespace {

constexpr std::size_t test_rows = 256;

std::shared_ptr<const plan> testing_plan(const built_model& model) {
  plan_options options;
  options.max_rows = test_rows;
  options.loss = model.loss;
  options.correct = model.correct;
  return std::make_shared<plan>(*model.graph, options);
}

} // namespace

evaluator::evaluator(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                     job_data data, evaluation_listener listener)
  : super(cfg), context_(std::move(context)), data_(std::move(data)),
    listener_(std::move(listener)), executor_(testing_plan(context_->model)),
    binding_(context_->parameters()), features_(test_rows * context_->data.feature_width) {
  if (context_->data.labels == label_kind::classes)
    classes_.resize(test_rows);
  else
    targets_.resize(test_rows * context_->data.label_width);
}

evaluator::behavior_type evaluator::make_behavior() {
  return {[this](const evaluate& x) { on_evaluate(x); }};
}

void evaluator::on_evaluate(const evaluate& x) {
  evaluated result;
  result.epoch = x.epoch;
  result.version = x.version;
  result.weights = flatten(x.weights);
  test(result.weights, result);
  const auto flat = result.weights.as_floats();
  result.weights_sha256 = sha256_hex(flat);
  if (is_linear(context_->job.model()) && data_.scaling) {
    // A linear model is one dense layer: its weight, then its bias, if it has one.
    const auto weights = context_->data.feature_width * context_->data.label_width;
    result.coefficients =
      linear_coefficients(flat.first(weights), flat.subspan(weights), *data_.scaling);
  }
  send(listener_, std::move(result));
}

payload evaluator::flatten(const std::vector<weight_range>& ranges) const {
  auto result = payload::floats(context_->parameters().size());
  for (auto& r : ranges)
    std::ranges::copy(r.data.as_floats(),
                      result.as_mutable_floats().begin() + static_cast<std::ptrdiff_t>(r.begin));
  return result;
}

void evaluator::test(const payload& weights, evaluated& result) {
  const auto& set = *data_.test;
  const std::array whole{weight_range{0, result.version, weights}};
  double loss = 0;
  std::size_t correct = 0;
  for (std::uint64_t first = 0; first < set.size(); first += test_rows) {
    const auto rows = std::min<std::uint64_t>(test_rows, set.size() - first);
    records_.resize(rows);
    std::iota(records_.begin(), records_.end(), first);
    label_batch labels;
    if (!classes_.empty())
      labels.classes = std::span{classes_}.first(rows);
    else
      labels.targets = std::span{targets_}.first(rows * context_->data.label_width);
    set.read(records_, std::span{features_}.first(rows * context_->data.feature_width), labels);
    std::array<feed<float>, 2> feeds{feed<float>{features_.data()}, {}};
    feeds[1] = classes_.empty() ? feed<float>{targets_.data()} : feed<float>{classes_.data()};
    run_arguments<float> arguments;
    arguments.rows = rows;
    arguments.weights = binding_.bind(whole);
    arguments.feeds = feeds;
    const auto r = executor_.run(arguments);
    loss += r.loss;
    correct += r.correct;
  }
  const auto n = static_cast<double>(std::max<std::uint64_t>(set.size(), 1));
  result.test_loss = loss / n;
  if (!classes_.empty())
    result.test_accuracy = static_cast<double>(correct) / n;
}

} // namespace troupe
