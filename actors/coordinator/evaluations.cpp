#include "actors/coordinator/evaluations.hpp"

#include "messages/errors.hpp"
#include "messages/problems.hpp"

namespace troupe {

namespace {

std::optional<double> optional(bool there, double value) {
  return there ? std::optional{value} : std::nullopt;
}

measured from_proto(const proto::Measured& x) {
  measured result;
  result.top_5 = optional(x.has_top_5(), x.top_5());
  result.auc = optional(x.has_auc(), x.auc());
  result.f1 = optional(x.has_f1(), x.f1());
  result.perplexity = optional(x.has_perplexity(), x.perplexity());
  result.confusion.assign(x.confusion().begin(), x.confusion().end());
  return result;
}

} // namespace

evaluations::evaluations(caf::actor_config& cfg, evaluations_options options)
  : super(cfg), options_(std::move(options)) {}

evaluations::behavior_type evaluations::make_behavior() {
  set_down_handler([this](caf::down_msg& x) { on_down(x); });
  local_ = options_.spawner.spawn_heavy<evaluator>(system(), options_.context, options_.source,
                                                   options_.device,
                                                   caf::actor_cast<evaluator_owner>(this));
  monitor(local_);
  return {
    [this](const evaluate& x) { on_evaluate(x); },
    [this](const evaluated& x) { send(options_.listener, x); },
    [this](const input_ready& x) {
      if (!x.problem.empty())
        quit(make_error(errc::failed, x.problem));
    },
    [this](const proto::Evaluated& x) { on_remote(x); },
    [this](const use_evaluator& x) { on_use(x); },
  };
}

void evaluations::on_exit() {
  anon_send_exit(local_, caf::exit_reason::user_shutdown);
  local_ = nullptr;
  remote_ = nullptr;
  options_.listener = nullptr;
}

void evaluations::on_evaluate(const evaluate& x) {
  if (!remote_) {
    send(local_, x);
    return;
  }
  // Copy the weights, so that the shards can reuse the memory of this version before the answer
  // arrives.
  auto weights = flatten(x.weights, options_.context->parameters().size());
  owed_[x.number] = {x.number, x.epoch, x.version, {{0, x.version, weights}}, x.last, x.midst};
  proto::Evaluate header;
  header.set_epoch(x.epoch);
  header.set_version(x.version);
  header.set_number(x.number);
  header.set_last(x.last);
  header.set_midst(x.midst);
  ask(
    this, remote_, options_.requests.once(weights.size()), [](const proto::Ack&) {},
    [this, asked = remote_](const caf::error& error) {
      if (remote_ == asked)
        give_up(explain(error));
    },
    header, weights);
}

void evaluations::on_remote(const proto::Evaluated& x) {
  auto i = owed_.find(x.number());
  if (i == owed_.end())
    return; // This message is repeated or late.
  const auto& shape = options_.context->data;
  const auto each = is_linear(options_.context->job.model()) ? 1 + shape.feature_width() : 0;
  if (const auto problem = problem_of(x, each * shape.label_width); !problem.empty()) {
    if (remote_)
      give_up("it sent " + problem);
    return;
  }
  evaluated result;
  result.number = x.number();
  result.version = i->second.version;
  result.weights = i->second.weights[0].data;
  result.loss = x.loss();
  result.accuracy = optional(x.has_accuracy(), x.accuracy());
  result.measures = from_proto(x.measures());
  if (x.has_test_loss())
    result.test = test_result{x.test_loss(), optional(x.has_test_accuracy(), x.test_accuracy()),
                              from_proto(x.test_measures())};
  result.weights_sha256 = x.weights_sha256();
  result.coefficients.assign(x.coefficients().begin(), x.coefficients().end());
  owed_.erase(i);
  send(options_.listener, std::move(result));
}

void evaluations::on_use(const use_evaluator& x) {
  if (remote_)
    give_up("it was started again");
  remote_ = x.handle;
  remote_task_ = x.task;
  monitor(remote_);
  notice(to_string(x.task) + " evaluates");
}

void evaluations::on_down(const caf::down_msg& x) {
  if (remote_ && remote_.address() == x.source)
    give_up(explain(x.reason));
  else if (local_ && local_.address() == x.source)
    quit(x.reason);
}

void evaluations::give_up(const std::string& reason) {
  notice(to_string(remote_task_) + " is gone: " + reason + "; the coordinator evaluates instead");
  demonitor(remote_.address());
  remote_ = nullptr;
  for (auto& [number, x] : std::exchange(owed_, {}))
    send(local_, std::move(x));
}

void evaluations::notice(const std::string& text) {
  if (options_.observer)
    send(options_.observer, run_notice{text});
}

} // namespace troupe
