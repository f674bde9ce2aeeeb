#include "actors/model/optimizer_builder.hpp"

#include "kernels/error.hpp"

namespace troupe {

namespace {

optimizer_kind kind_of(proto::OptimizerKind x) {
  switch (x) {
  case proto::SGD:
    return optimizer_kind::sgd;
  case proto::MOMENTUM:
    return optimizer_kind::momentum;
  case proto::NESTEROV:
    return optimizer_kind::nesterov;
  case proto::ADAGRAD:
    return optimizer_kind::adagrad;
  case proto::RMSPROP:
    return optimizer_kind::rmsprop;
  case proto::ADAM:
    return optimizer_kind::adam;
  case proto::ADAMW:
    return optimizer_kind::adamw;
  case proto::LAMB:
    return optimizer_kind::lamb;
  case proto::OPTIMIZER_UNSET:
    break;
  }
  throw input_error("optimizer.kind: expected SGD, MOMENTUM, NESTEROV, ADAGRAD, RMSPROP, ADAM, "
                    "ADAMW or LAMB");
}

} // namespace

optimizer build_optimizer(const proto::Optimizer& options) {
  optimizer result;
  result.kind = kind_of(options.kind());
  const bool momentum = result.kind != optimizer_kind::rmsprop || options.has_momentum();
  result.momentum = momentum ? options.momentum() : 0;
  result.weight_decay = options.weight_decay();
  result.beta1 = options.beta1();
  result.beta2 = options.beta2();
  result.smoothing = options.smoothing();
  const bool adagrad = result.kind == optimizer_kind::adagrad && !options.has_epsilon();
  result.epsilon = adagrad ? 1e-10 : options.epsilon();
  result.clip_value = options.clip_value();
  result.clip_norm = options.clip_norm();
  result.l1 = options.l1();
  return result;
}

learning_rate build_learning_rate(const proto::Job& job) {
  const auto& options = job.learning_rate();
  learning_rate result;
  result.base = options.base();
  result.warmup_epochs = options.warmup_epochs();
  if (options.has_step())
    result.schedule = step_rate{options.step().every_epochs(), options.step().factor()};
  else if (options.has_cosine())
    result.schedule = cosine_rate{options.cosine().final(), static_cast<double>(job.epochs())};
  else if (options.has_exponential())
    result.schedule = exponential_rate{options.exponential().factor()};
  else if (options.has_one_cycle())
    result.schedule =
      one_cycle_rate{options.one_cycle().rising(), options.one_cycle().start_divisor(),
                     options.one_cycle().end_divisor(), static_cast<double>(job.epochs())};
  check(result);
  return result;
}

} // namespace troupe
