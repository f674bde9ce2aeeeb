#include "actors/coordinator/evaluation_service.hpp"

#include "messages/errors.hpp"

#include <array>
#include <cstdio>

namespace troupe {

namespace {

proto::Measured to_proto(const measured& x) {
  proto::Measured result;
  if (x.top_5)
    result.set_top_5(*x.top_5);
  if (x.auc)
    result.set_auc(*x.auc);
  if (x.f1)
    result.set_f1(*x.f1);
  if (x.perplexity)
    result.set_perplexity(*x.perplexity);
  result.mutable_confusion()->Add(x.confusion.begin(), x.confusion.end());
  return result;
}

} // namespace

evaluation_service::evaluation_service(caf::actor_config& cfg, evaluation_service_options options)
  : super(cfg), options_(std::move(options)) {}

evaluation_service::behavior_type evaluation_service::make_behavior() {
  set_down_handler([this](caf::down_msg& x) { quit(x.reason); });
  evaluator_ = options_.spawner.spawn_heavy<evaluator>(system(), options_.context, options_.source,
                                                       options_.device,
                                                       caf::actor_cast<evaluator_owner>(this));
  monitor(evaluator_);
  return {
    [this](const proto::Evaluate& x, const payload& weights) { return on_evaluate(x, weights); },
    [this](const evaluated& x) { on_evaluated(x); },
    [this](const input_ready& x) {
      send(options_.owner, evaluator_ready{options_.task, x.problem});
    },
  };
}

void evaluation_service::on_exit() {
  anon_send_exit(evaluator_, caf::exit_reason::user_shutdown);
  evaluator_ = nullptr;
  options_.coordinator = nullptr;
  options_.observer = nullptr;
  options_.owner = nullptr;
}

caf::result<proto::Ack> evaluation_service::on_evaluate(const proto::Evaluate& x,
                                                        const payload& weights) {
  const auto expected = options_.context->parameters().size() * sizeof(float);
  if (weights.size() != expected)
    return make_error(errc::malformed,
                      "a snapshot of " + std::to_string(weights.size()) + " bytes instead of "
                        + std::to_string(expected));
  const auto what =
    x.midst() ? "step " + std::to_string(x.version()) : "epoch " + std::to_string(x.epoch() + 1);
  if (taken_.emplace(x.number(), what).second)
    send(evaluator_,
         evaluate{
           x.number(), x.epoch(), x.version(), {{0, x.version(), weights}}, x.last(), x.midst()});
  return proto::Ack{};
}

void evaluation_service::on_evaluated(const evaluated& x) {
  proto::Evaluated answer;
  answer.set_number(x.number);
  answer.set_loss(x.loss);
  if (x.accuracy)
    answer.set_accuracy(*x.accuracy);
  *answer.mutable_measures() = to_proto(x.measures);
  if (x.test) {
    answer.set_test_loss(x.test->loss);
    if (x.test->accuracy)
      answer.set_test_accuracy(*x.test->accuracy);
    *answer.mutable_test_measures() = to_proto(x.test->measures);
  }
  answer.set_weights_sha256(x.weights_sha256);
  answer.mutable_coefficients()->Add(x.coefficients.begin(), x.coefficients.end());
  if (options_.observer) {
    std::array<char, 64> loss{};
    std::snprintf(loss.data(), loss.size(), "%.4f", x.loss);
    send(
      options_.observer,
      run_notice{taken_[x.number] + ": " + evaluated_name(x.validation) + " loss " + loss.data()});
  }
  // If the result cannot be delivered, this actor ends. The coordinator's node then evaluates the
  // snapshot itself.
  ask(
    this, options_.coordinator, options_.requests, [](const proto::Ack&) {},
    [this](const caf::error& error) { quit(error); }, answer);
}

} // namespace troupe
