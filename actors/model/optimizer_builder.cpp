#include "actors/model/optimizer_builder.hpp"

#include "actors/model/problem_list.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/glob.hpp"

#include <algorithm>
#include <string>

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

/// Explains why no tensor belongs to a group.
std::string why_unused(const std::string& pattern, const layout& parameters) {
  std::vector<std::string> trainable;
  bool matched = false;
  bool before = false;
  for (const auto& tensor : parameters.entries()) {
    const bool matches = matches_glob(pattern, tensor.name);
    const bool trains = tensor.kind == parameter_kind::trainable;
    matched = matched || matches;
    before = before || (matches && trains);
    if (trains)
      trainable.push_back(tensor.name);
  }
  const auto what = "\"" + pattern + "\" ";
  if (before)
    return what + "matches only parameters of earlier groups; move it up, or leave it out";
  if (matched)
    return what + "matches no trained parameter; leave the group out";
  return what + "matches no parameter; " + glob_suggestion(pattern, trainable);
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
  result.lazy = options.lazy();
  return result;
}

parameter_groups build_groups(const proto::Optimizer& options, const layout& parameters) {
  parameter_groups result;
  const auto rule = build_optimizer(options);
  for (const auto& group : options.group()) {
    auto own = rule;
    if (group.has_weight_decay())
      own.weight_decay = group.weight_decay();
    if (group.has_l1())
      own.l1 = group.l1();
    if (group.has_lazy())
      own.lazy = group.lazy();
    result.rules.push_back({own, group.learning_rate_scale()});
  }
  const auto others = result.rules.size();
  result.rules.push_back({rule, 1});
  std::vector<bool> used(others);
  for (const auto& tensor : parameters.entries()) {
    std::size_t group = 0;
    while (group < others
           && !(tensor.kind == parameter_kind::trainable
                && matches_glob(options.group(static_cast<int>(group)).match(), tensor.name)))
      ++group;
    result.of_tensor.push_back(group);
    if (group < others)
      used[group] = true;
  }
  problem_list problems;
  for (std::size_t i = 0; i < others; ++i)
    problems.require(used[i], "optimizer.group[" + std::to_string(i) + "].match",
                     why_unused(options.group(static_cast<int>(i)).match(), parameters));
  problems.throw_if_any();
  return result;
}

learning_rate unchecked_learning_rate(const proto::Job& job) {
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
  return result;
}

learning_rate build_learning_rate(const proto::Job& job) {
  auto result = unchecked_learning_rate(job);
  check(result);
  return result;
}

} // namespace troupe
