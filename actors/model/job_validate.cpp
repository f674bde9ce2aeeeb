#include "actors/model/device_placement.hpp"
#include "actors/model/job_file.hpp"
#include "actors/model/layer_list.hpp"
#include "actors/model/model_builder.hpp"
#include "actors/model/optimizer_builder.hpp"
#include "actors/model/problem_list.hpp"
#include "actors/model/protocol_traits.hpp"
#include "kernels/text.hpp"

#include <cmath>
#include <limits>
#include <set>
#include <vector>

namespace troupe {

namespace {

constexpr std::uint32_t digit_classes_needed = 10;
/// Smaller numbers are 0 in updates, which compute in float32.
constexpr double least_float = std::numeric_limits<float>::min();

/// The dense layer that produces the output, or nullptr.
const proto::Layer* last_dense(const proto::Model& model) {
  const auto n = model.layer_size();
  return n > 0 && model.layer(n - 1).has_dense() ? &model.layer(n - 1) : nullptr;
}

/// Units of the last dense layer; 0 if there is none.
std::uint32_t last_units(const proto::Model& model) {
  const auto* last = last_dense(model);
  return last != nullptr ? last->dense().units() : 0;
}

std::string last_name(const proto::Model& model) {
  const auto index = model.layer_size() - 1;
  return index >= 0 ? layer_name(model.layer(index), index) : "";
}

void check_model(const proto::Model& model, problem_list& problems) {
  const bool onnx = model.has_onnx() || model.has_onnx_structure();
  problems.require(model.layer_size() > 0 || onnx, "model.layer",
                   "no layers; add at least one, such as layer { dense { units: 10 } }");
  problems.require(model.layer_size() == 0 || !onnx, "model.layer",
                   "model.onnx already describes the model; leave out one of the two");
  problems.require(model.loss() != proto::LOSS_UNSET, "model.loss",
                   "missing; expected one of " + loss_names());
  list_layers(model, problems);
  problems.require(
    model.label_smoothing() >= 0 && model.label_smoothing() < 1, "model.label_smoothing",
    "expected 0 or more and less than 1, got " + std::to_string(model.label_smoothing()));
  if (model.loss() == proto::SOFTMAX_CROSS_ENTROPY) {
    problems.require(last_units(model) != 1, "model.loss",
                     "SOFTMAX_CROSS_ENTROPY over a single class (layer \"" + last_name(model)
                       + "\" has 1 unit) learns nothing; give it a unit per class");
    return;
  }
  problems.require(model.label_smoothing() == 0, "model.label_smoothing",
                   "only SOFTMAX_CROSS_ENTROPY supports it; leave it out");
  problems.require(!model.has_ignored_label(), "model.ignored_label",
                   "only SOFTMAX_CROSS_ENTROPY supports it; leave it out");
}

/// Checks whether model and data fit together, as far as possible without reading the data.
void check_fit(const proto::Job& job, problem_list& problems) {
  const auto& model = job.model();
  const std::uint32_t units = last_units(model);
  const bool softmax = model.loss() == proto::SOFTMAX_CROSS_ENTROPY;
  const bool unset = model.loss() == proto::LOSS_UNSET;
  const auto last = [&] {
    return "the last layer, \"" + last_name(model) + "\", has " + std::to_string(units) + " units";
  };
  const bool needs_targets =
    model.loss() == proto::MEAN_SQUARED_ERROR || model.loss() == proto::MEAN_ABSOLUTE_ERROR;
  if (job.data().has_digits() && !softmax && !unset && !needs_targets)
    problems.add("model.loss",
                 proto::Loss_Name(model.loss())
                   + " does not fit the digits' 10 classes; use SOFTMAX_CROSS_ENTROPY");
  if ((job.data().has_idx() || job.data().has_digits()) && needs_targets)
    problems.add("model.loss",
                 proto::Loss_Name(model.loss())
                   + " needs targets, but the data has classes; use SOFTMAX_CROSS_ENTROPY");
  const bool label = job.data().csv().has_label();
  if (softmax && job.data().has_csv() && !label)
    problems.add("model.loss",
                 "SOFTMAX_CROSS_ENTROPY needs classes, but data.csv has a target; use "
                 "MEAN_SQUARED_ERROR, or name the column of classes as data.csv.label");
  if (needs_targets && label)
    problems.add("model.loss",
                 proto::Loss_Name(model.loss())
                   + " needs targets, but data.csv.label says classes; use SOFTMAX_CROSS_ENTROPY, "
                     "or data.csv.target");
  if (units == 0)
    return;
  if (!softmax && !unset && job.data().has_csv())
    problems.require(units == 1, "model.layer",
                     last()
                       + (label ? ", but " + proto::Loss_Name(model.loss())
                              + " of two classes needs" + " one; expected units: 1"
                                : ", but the data has 1 target; expected units: 1"));
  if (softmax && job.data().has_digits())
    problems.require(units >= digit_classes_needed, "model.layer",
                     last() + ", but the digits have 10 classes; expected units: 10");
}

void check_optimizer(const proto::Optimizer& optimizer, problem_list& problems) {
  problems.require(optimizer.kind() != proto::OPTIMIZER_UNSET, "optimizer.kind",
                   "expected SGD, MOMENTUM, NESTEROV, ADAGRAD, RMSPROP, ADAM, ADAMW or LAMB");
  const float momentum = optimizer.momentum();
  problems.require(momentum >= 0 && momentum < 1, "optimizer.momentum",
                   "expected 0 or more and less than 1, got " + std::to_string(momentum));
  const float decay = optimizer.weight_decay();
  problems.require(std::isfinite(decay) && decay >= 0, "optimizer.weight_decay",
                   "expected a finite number, 0 or more, got " + std::to_string(decay));
  const auto part = [&](double value, const std::string& path) {
    problems.require(value >= 0 && value < 1, path,
                     "expected 0 or more and less than 1, got " + std::to_string(value));
  };
  part(optimizer.beta1(), "optimizer.beta1");
  part(optimizer.beta2(), "optimizer.beta2");
  part(optimizer.smoothing(), "optimizer.smoothing");
  const auto kind = optimizer.kind();
  const bool used = kind != proto::SGD && kind != proto::MOMENTUM && kind != proto::NESTEROV;
  problems.require(std::isfinite(optimizer.epsilon())
                     && optimizer.epsilon() >= (used ? least_float : 0),
                   "optimizer.epsilon",
                   "expected a finite number, at least 1.2e-38 (the smallest normal float32), got "
                     + number_text(optimizer.epsilon()));
  const auto number = [&](double value, const std::string& path) {
    problems.require(std::isfinite(value) && value >= 0, path,
                     "expected a finite number, 0 or more, got " + std::to_string(value));
  };
  number(optimizer.clip_value(), "optimizer.clip_value");
  problems.require(!(optimizer.clip_value() > 0 && optimizer.clip_value() < least_float),
                   "optimizer.clip_value",
                   "as a float32, this is 0; leave it out, or make it larger");
  number(optimizer.clip_norm(), "optimizer.clip_norm");
  number(optimizer.l1(), "optimizer.l1");
  const auto lazy = [&](bool value, const std::string& path) {
    problems.require(
      !value || optimizer.kind() != proto::LAMB, path,
      "LAMB needs the steps of all weights of a tensor; leave it out, or use another "
      "kind, such as ADAMW");
  };
  lazy(optimizer.lazy(), "optimizer.lazy");
  for (int i = 0; i < optimizer.group_size(); ++i) {
    const auto& group = optimizer.group(i);
    const auto path = "optimizer.group[" + std::to_string(i) + "]";
    problems.require(!group.match().empty(), path + ".match",
                     "missing; expected names of parameters, such as \"*.bias\"");
    problems.require(group.has_weight_decay() || group.has_l1() || group.has_learning_rate_scale()
                       || group.has_lazy(),
                     path, "has no effect; add weight_decay, l1, learning_rate_scale or lazy");
    number(group.weight_decay(), path + ".weight_decay");
    number(group.l1(), path + ".l1");
    lazy(group.lazy(), path + ".lazy");
    const double scale = group.learning_rate_scale();
    problems.require(std::isfinite(scale) && scale > 0, path + ".learning_rate_scale",
                     "expected a finite number, more than 0, got " + std::to_string(scale)
                       + "; to keep parameters unchanged, name them in model.freeze");
  }
}

void check_learning_rate(const proto::Job& job, problem_list& problems) {
  const auto& rate = job.learning_rate();
  for (const auto& problem : problems_of(unchecked_learning_rate(job)))
    if (problem.field != "epochs") // the epochs of every job are checked elsewhere
      problems.add(problem.field, problem.text);
  problems.require(!(rate.warmup_epochs() > static_cast<float>(job.epochs())),
                   "learning_rate.warmup_epochs", "longer than the job's epochs");
}

void check_solver(const proto::Job& job, problem_list& problems) {
  problems.require(job.solver() != proto::SOLVER_UNSET, "solver", "expected ITERATIVE or EXACT");
  if (job.solver() != proto::EXACT)
    return;
  problems.require(is_linear(job.model()), "solver",
                   "EXACT needs a linear model: one dense layer without activation, and loss "
                   "MEAN_SQUARED_ERROR; use ITERATIVE");
  problems.require(!job.data().has_libsvm(), "solver",
                   "EXACT does not support sparse rows (data.libsvm); use ITERATIVE");
  problems.require(!job.data().csv().sparse(), "data.csv.sparse",
                   "solver: EXACT needs dense features; leave it out, or use solver: ITERATIVE");
  problems.require(
    !job.has_evaluate(), "evaluate",
    "solver: EXACT makes no steps, so nothing is evaluated in between; leave it out");
  problems.require(job.model().freeze_size() == 0, "model.freeze",
                   "solver: EXACT finds all weights at once; leave it out, or use solver: "
                   "ITERATIVE");
  for (int i = 0; i < job.optimizer().group_size(); ++i) {
    const auto& group = job.optimizer().group(i);
    const auto path = "optimizer.group[" + std::to_string(i) + "]";
    problems.require(group.l1() == 0, path + ".l1",
                     "there is no closed form with an L1 penalty; leave it out, or use solver: "
                     "ITERATIVE");
    problems.require(!group.has_learning_rate_scale(), path + ".learning_rate_scale",
                     "solver: EXACT makes no steps; leave it out");
  }
  problems.require(job.optimizer().l1() == 0, "optimizer.l1",
                   "there is no closed form with an L1 penalty; leave it out, or use solver: "
                   "ITERATIVE");
  problems.require(
    !job.has_checkpoint(), "checkpoint",
    "solver: EXACT makes no steps, so there is nothing to continue from; leave it out");
}

void check_precision(const proto::Job& job, problem_list& problems) {
  const auto& scale = job.loss_scale();
  const auto precision = job.precision();
  problems.require(precision != proto::PRECISION_UNSET, "precision",
                   "expected FLOAT32, BFLOAT16 or FLOAT16");
  const auto exchanged = job.exchange_precision();
  problems.require(exchanged == proto::FLOAT32 || exchanged == proto::BFLOAT16,
                   "exchange_precision", "expected FLOAT32 or BFLOAT16");
  problems.require(exchanged == proto::FLOAT32 || job.solver() != proto::EXACT,
                   "exchange_precision", "solver: EXACT makes no steps; leave it out");
  problems.require(precision == proto::FLOAT32 || job.solver() != proto::EXACT, "precision",
                   "solver: EXACT makes no steps; leave it out");
  problems.require(!job.tf32() || job.solver() != proto::EXACT, "tf32",
                   "solver: EXACT computes in double on the CPU; leave it out");
  problems.require(!job.tf32() || precision == proto::FLOAT32, "tf32",
                   "products of precision: " + proto::Precision_Name(precision)
                     + " have 16 bits already; leave it out");
  problems.require(!job.has_loss_scale() || precision == proto::FLOAT16, "loss_scale",
                   "only precision: FLOAT16 needs it; leave it out");
  int exponent = 0;
  problems.require(std::frexp(scale.initial(), &exponent) == 0.5 && scale.initial() >= 1
                     && scale.initial() <= 0x1p60,
                   "loss_scale.initial",
                   "expected a power of two from 1 to 2^60, such as 65536, got "
                     + std::to_string(scale.initial()));
  if (precision != proto::FLOAT16)
    return;
  problem_list reported_before;
  for (const auto& layer : list_layers(job.model(), reported_before))
    problems.require(!layer.layer->batch_norm().sync(), "precision",
                     "FLOAT16 does not fit layer \"" + layer.name
                       + "\", whose batch_norm.sync adds up gradients of all workers: each worker "
                         "scales its own; use BFLOAT16, or leave out sync");
}

/// Largest number of threads. No machine has more processors, and this many threads do not exhaust
/// a machine.
constexpr std::uint32_t most_threads = 1024;

void check_runtime(const proto::Runtime& runtime, problem_list& problems) {
  problems.require(runtime.request_timeout_ms() >= 1, "runtime.request_timeout_ms",
                   "expected at least 1");
  problems.require(runtime.suspect_after_ms() >= 100, "runtime.suspect_after_ms",
                   std::to_string(runtime.suspect_after_ms())
                     + "; expected at least 100: processes pause, and nodes are then lost");
  // A request is tried three times (patience). Without an answer, the run fails. A broken
  // connection must therefore be repaired in less time than three tries.
  const auto answered_within = 3 * std::uint64_t{runtime.request_timeout_ms()};
  problems.require(!runtime.has_link_grace_ms() || runtime.link_grace_ms() < answered_within,
                   "runtime.link_grace_ms",
                   std::to_string(runtime.link_grace_ms()) + "; expected less than "
                     + std::to_string(answered_within)
                     + ", because a run fails if a request has no answer after three times "
                       "runtime.request_timeout_ms; raise that, too");
  problems.require(runtime.join_timeout_ms() >= 1, "runtime.join_timeout_ms",
                   "expected at least 1");
  problems.require(runtime.threads() >= 1 && runtime.threads() <= most_threads, "runtime.threads",
                   "expected a number of threads from 1 to " + std::to_string(most_threads)
                     + ", got " + std::to_string(runtime.threads()));
  const auto size = [&](std::uint32_t bytes, const std::string& path) {
    problems.require(bytes >= 4 && bytes % 4 == 0, path,
                     "expected a multiple of 4 (bytes of a float), at least 4, got "
                       + std::to_string(bytes));
  };
  size(runtime.ring_chunk_bytes(), "runtime.ring_chunk_bytes");
  size(runtime.bucket_bytes(), "runtime.bucket_bytes");
}

void check_accumulate(const proto::Job& job, problem_list& problems) {
  constexpr std::uint64_t most_samples = std::uint64_t{1} << 30;
  const std::uint64_t batches = job.accumulate();
  problems.require(batches >= 1, "accumulate", "0; expected a number of batches, at least 1");
  const bool whole = job.data().has_batch() && job.data().batch() == 0;
  problems.require(!whole || batches <= 1, "accumulate",
                   "data.batch is 0, and a batch has all training records; leave accumulate out");
  problems.require(batches * job.data().batch() <= most_samples, "accumulate",
                   std::to_string(batches) + " batches of " + std::to_string(job.data().batch())
                     + " samples; expected at most " + std::to_string(most_samples)
                     + " samples of all of them");
}

/// Checks the entries of Job.device. Errors give the index of the wrong entry.
void check_devices(const proto::Job& job, problem_list& problems) {
  bool on_gpu = false;
  for (int i = 0; i < job.device_size(); ++i) {
    try {
      on_gpu = parse_device(job.device(i)).device.gpu || on_gpu;
    } catch (const input_error& error) {
      problems.add("device[" + std::to_string(i) + "]", error.what());
    }
  }
  problems.require(!on_gpu || job.solver() != proto::EXACT, "device",
                   "solver: EXACT computes on the CPU of the coordinator; leave it out");
}

} // namespace

void validate(const proto::Job& job, data_from data, std::span<const protocol_traits> own) {
  problem_list problems;
  check_model(job.model(), problems);
  check_data(job.data(), data, problems);
  check_fit(job, problems);
  check_optimizer(job.optimizer(), problems);
  check_learning_rate(job, problems);
  check_solver(job, problems);
  check_protocol(job, own, problems);
  problems.require(job.epochs() >= 1, "epochs", "0; expected at least 1");
  problems.require(job.max_bad() >= 1, "max_bad", "0; expected at least 1");
  check_accumulate(job, problems);
  check_precision(job, problems);
  check_runtime(job.runtime(), problems);
  check_devices(job, problems);
  if (job.has_checkpoint()) {
    problems.require(job.checkpoint().every_steps() >= 1, "checkpoint.every_steps",
                     "expected a number of updates, at least 1");
    problems.require(job.checkpoint().keep() >= 1, "checkpoint.keep", "expected at least 1");
  }
  if (job.has_elastic()) {
    problems.require(job.has_checkpoint(), "elastic",
                     "after a loss, the run goes on from its newest checkpoint: add checkpoint { "
                     "every_steps: 500 }");
    problems.require(job.elastic().min_workers() >= 1, "elastic.min_workers",
                     "expected at least 1");
  }
  if (job.has_early_stopping()) {
    const auto& x = job.early_stopping();
    problems.require(x.patience() >= 1, "early_stopping.patience", "expected at least 1");
    problems.require(x.min_delta() >= 0 && std::isfinite(x.min_delta()), "early_stopping.min_delta",
                     std::to_string(x.min_delta()) + "; expected a finite number, at least 0");
    problems.require(job.solver() != proto::EXACT, "early_stopping",
                     "solver: EXACT makes no steps; leave it out");
  }
  if (job.model().has_partial_weights()) {
    problems.require(!job.model().initial_weights().empty(), "model.partial_weights",
                     "takes tensors from model.initial_weights, which is missing");
    for (int i = 0; i < job.model().partial_weights().rename_size(); ++i) {
      const auto& x = job.model().partial_weights().rename(i);
      problems.require(x.file() != x.model(),
                       "model.partial_weights.rename[" + std::to_string(i) + "]",
                       "expected different beginnings `file` and `model`");
    }
  }
  if (job.has_moving_average()) {
    const auto decay = job.moving_average().decay();
    problems.require(decay > 0 && decay < 1, "moving_average.decay",
                     std::to_string(decay)
                       + "; expected more than 0 and less than 1, such as 0.999");
    problems.require(job.solver() != proto::EXACT, "moving_average",
                     "solver: EXACT makes no steps; leave it out");
  }
  if (job.has_evaluate())
    problems.require(job.evaluate().has_every_steps() ? job.evaluate().every_steps() >= 1
                                                      : job.evaluate().measure_size() > 0,
                     "evaluate.every_steps",
                     "expected a number of updates, at least 1"
                       + std::string{job.evaluate().measure_size() > 0
                                       ? "; leave it out to evaluate only after each epoch"
                                       : ""});
  problems.throw_if_any();
}

} // namespace troupe
