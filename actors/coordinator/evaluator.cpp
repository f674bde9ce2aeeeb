#include "actors/coordinator/evaluator.hpp"

#include "actors/model/data_fingerprint.hpp"
#include "actors/model/sha256.hpp"
#include "kernels/data/table.hpp"
#include "kernels/error.hpp"
#include "messages/errors.hpp"

#include <algorithm>

namespace troupe {

payload flatten(const std::vector<weight_range>& ranges, std::size_t size) {
  auto result = payload::floats(size);
  for (auto& r : ranges)
    std::ranges::copy(r.data.as_floats(),
                      result.as_mutable_floats().begin() + static_cast<std::ptrdiff_t>(r.begin));
  return result;
}

evaluator::evaluator(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                     data_source source, testing_device device, evaluator_owner owner)
  : super(cfg), context_(std::move(context)), source_(std::move(source)),
    device_(std::move(device)), owner_(std::move(owner)) {}

evaluator::behavior_type evaluator::make_behavior() {
  load();
  return {[this](const evaluate& x) { on_evaluate(x); }};
}

void evaluator::load() {
  input_ready ready;
  try {
    data_ = source_(context_->job);
    const record_shape& expected = context_->data;
    if (data_.test->record() != expected)
      throw input_error{"the test data here (" + to_string(data_.test->record())
                        + ") differ in shape from the coordinator's (" + to_string(expected) + ")"};
    if (data_.validation && data_.validation->record() != expected)
      throw input_error{"the validation data here differ in shape from the coordinator's"};
    require_same_data(data_, context_->fingerprint);
    data_.train = nullptr;
    tester_ =
      device_.make_tester ? device_.make_tester() : std::make_unique<model_tester>(*context_);
  } catch (const device_error& error) {
    ready.problem = device_.name + ": " + error.what();
  } catch (const std::exception& error) {
    ready.problem = error.what();
  }
  send(owner_, std::move(ready));
}

void evaluator::on_evaluate(const evaluate& x) {
  if (!tester_)
    return;
  try {
    send(owner_, result_of(x));
  } catch (const device_error& error) {
    tester_ = nullptr;
    quit(make_error(errc::failed, device_.name + ": " + error.what()));
  }
}

evaluated evaluator::result_of(const evaluate& x) {
  evaluated result;
  result.number = x.number;
  result.version = x.version;
  result.validation = data_.validation != nullptr;
  result.weights = flatten(x.weights, context_->parameters().size());
  const auto flat = result.weights.as_floats();
  const auto tested = tester_->run(flat, *data_.evaluated());
  result.loss = tested.loss;
  result.accuracy = tested.accuracy;
  result.measures = tested.measures;
  if (x.last && data_.validation)
    result.test = tester_->run(flat, *data_.test);
  result.weights_sha256 = sha256_hex(flat);
  if (is_linear(context_->job.model()) && data_.scaling) {
    // A linear model is one dense layer: first its weight, then its bias if there is one.
    const auto weights = context_->data.feature_width() * context_->data.label_width;
    result.coefficients =
      linear_coefficients(flat.first(weights), flat.subspan(weights), *data_.scaling);
  }
  return result;
}

} // namespace troupe
