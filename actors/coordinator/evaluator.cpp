#include "actors/coordinator/evaluator.hpp"

#include "actors/model/sha256.hpp"
#include "kernels/data/table.hpp"

#include <algorithm>

namespace troupe {

evaluator::evaluator(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                     job_data data, evaluation_listener listener)
  : super(cfg), context_(std::move(context)), data_(std::move(data)),
    listener_(std::move(listener)), tester_(*context_) {}

evaluator::behavior_type evaluator::make_behavior() {
  return {[this](const evaluate& x) { on_evaluate(x); }};
}

void evaluator::on_evaluate(const evaluate& x) {
  evaluated result;
  result.epoch = x.epoch;
  result.version = x.version;
  result.weights = flatten(x.weights);
  const auto flat = result.weights.as_floats();
  const auto tested = tester_.run(flat, *data_.test);
  result.test_loss = tested.loss;
  result.test_accuracy = tested.accuracy;
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

} // namespace troupe
