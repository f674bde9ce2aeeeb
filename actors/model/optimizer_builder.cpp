#include "actors/model/optimizer_builder.hpp"

#include "kernels/error.hpp"

namespace troupe {

optimizer build_optimizer(const proto::Optimizer& options) {
  optimizer result;
  result.momentum = options.momentum();
  result.weight_decay = options.weight_decay();
  switch (options.kind()) {
  case proto::SGD:
    result.kind = optimizer_kind::sgd;
    return result;
  case proto::MOMENTUM:
    result.kind = optimizer_kind::momentum;
    return result;
  case proto::NESTEROV:
    result.kind = optimizer_kind::nesterov;
    return result;
  case proto::OPTIMIZER_UNSET:
    break;
  }
  throw input_error("optimizer.kind: expected SGD, MOMENTUM or NESTEROV");
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
  check(result);
  return result;
}

} // namespace troupe
