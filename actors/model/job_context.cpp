#include "actors/model/job_context.hpp"

#include "actors/model/measures.hpp"

#include "actors/model/job_file.hpp"
#include "kernels/cpu/executor.hpp"
#include "kernels/error.hpp"
#include "kernels/graph/initializers.hpp"
#include "kernels/graph/placement.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// Throws input_error if batches of one sample are normalized one number at a time: the result
/// would be zeros.
void check_normalization(const job_context& x) {
  if (x.batch() > 1)
    return;
  const auto& nodes = x.model.graph->nodes();
  for (const auto& node : nodes) {
    // The key is not 0 if the moments are over the batches of all workers.
    if (node.op != operation::channel_moments || node.key != 0)
      continue;
    const auto& read = nodes[node.inputs[0]];
    if (read.shape.elements(1) == static_cast<std::size_t>(read.shape[1]))
      throw input_error("data.batch: 1 sample, but batch normalization of " + to_string(read.shape)
                        + " makes zeros of a single one; expected at least 2");
  }
}

} // namespace

void job_context::initialize(range part, std::span<float> out) const {
  troupe::initialize(parameters(), part, job.seed(), out, orthogonal_.get());
}

std::vector<range> job_context::shards(std::size_t count) const {
  const bool whole = rule.by_tensor() || job.placement() == proto::BY_TENSOR;
  return whole ? cut_at_tensors(parameters(), count) : cut_at_rows(parameters(), count);
}

std::vector<range> job_context::buckets() const {
  std::vector<range> result;
  for (auto& x : training->buckets())
    result.push_back(x.elements);
  return result;
}

std::shared_ptr<const job_context>
make_job_context(const proto::Job& job, const data_shape& data,
                 std::span<const protocol_traits> own, std::map<std::string, std::string> metadata,
                 std::optional<proto::DataFingerprint> fingerprint) {
  auto result = std::make_shared<job_context>();
  result->job = job;
  result->hash = job_hash(job);
  result->metadata = std::move(metadata);
  result->protocol = adapted_traits(job, own);
  result->data = data;
  result->fingerprint = std::move(fingerprint);
  result->model = build_model(job.model(), data);
  check_normalization(*result);
  check_measures(job, data, result->model);
  auto options = cpu_plan_options();
  options.max_rows = result->batch();
  options.loss = result->model.training_loss;
  options.gradients = true;
  options.bucket_bytes = job.runtime().bucket_bytes();
  result->training = std::make_shared<plan>(*result->model.graph, options);
  result->rule = build_optimizer(job.optimizer());
  result->groups = build_groups(job.optimizer(), result->parameters());
  result->rate = build_learning_rate(job);
  return result;
}

range_updater::range_updater(const job_context& context, range where, bool moment_apart)
  : rule_(context.rule), rate_(context.rate), train_records_(context.data.train_records),
    elements_(where.size()), apart_(moment_apart ? rule_.moment_slot() : std::nullopt),
    state_((rule_.slots() - (apart_ ? 1 : 0)) * elements_) {
  const auto& tensors = context.parameters().entries();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& tensor = tensors[i];
    const auto common = intersect(tensor.elements(), where);
    if (common.empty())
      continue;
    const range here{common.begin - where.begin, common.end - where.begin};
    const bool trainable = tensor.kind == parameter_kind::trainable;
    const auto how = context.rule_of(i);
    if (trainable && !rule_.by_tensor() && !segments_.empty()
        && segments_.back().kind == parameter_kind::trainable && segments_.back().how == how)
      segments_.back().where.end = here.end;
    else
      segments_.push_back({here, tensor.kind, tensor.decay, how});
  }
}

std::span<const float> range_updater::state(std::size_t slot) const {
  return std::span{state_}.subspan(offset(slot), elements_);
}

void range_updater::restore(std::size_t slot, std::span<const float> values) {
  const auto where = std::span{state_}.subspan(offset(slot), elements_);
  std::copy_n(values.begin(), where.size(), where.begin());
}

void range_updater::apply(std::span<const float> weights, std::span<const float> gradient,
                          std::uint64_t samples, std::span<float> updated, const terms& how) {
  update_range(weights, gradient, samples, updated, how, state_);
  samples_ += samples;
  ++updates_;
}

void range_updater::stage(std::span<const float> weights, std::span<const float> gradient,
                          std::uint64_t samples, std::span<float> updated, double factor) {
  staged_ = state_;
  staged_samples_ = samples;
  if (samples > 0)
    update_range(weights, gradient, samples, updated, terms{.factor = factor}, staged_);
  else
    std::ranges::copy(weights, updated.begin());
}

void range_updater::publish() noexcept {
  if (!staged_samples_)
    return;
  std::swap(state_, staged_);
  samples_ += *staged_samples_;
  ++updates_;
  staged_samples_.reset();
}

void range_updater::update_range(std::span<const float> weights, std::span<const float> gradient,
                                 std::uint64_t samples, std::span<float> updated, const terms& how,
                                 std::span<float> state) const {
  const double mean = 1.0 / static_cast<double>(samples);
  const double middle = static_cast<double>(samples_) + static_cast<double>(samples) / 2;
  const double rate = how.rate_factor * rate_.at(middle / static_cast<double>(train_records_));
  const auto slots = rule_.slots() - (apart_ ? 1 : 0);
  for (const auto& [where, kind, decay, own] : segments_) {
    const auto begin = where.begin;
    const auto n = where.size();
    update_arguments<float> arguments;
    arguments.weights = weights.subspan(begin, n);
    arguments.gradient = gradient.subspan(begin, n);
    arguments.updated = updated.subspan(begin, n);
    if (kind == parameter_kind::frozen) {
      if (arguments.updated.data() != arguments.weights.data())
        std::ranges::copy(arguments.weights, arguments.updated.begin());
      continue;
    }
    if (kind == parameter_kind::state) {
      update_statistics(arguments.weights, arguments.gradient, mean, decay, arguments.updated);
      continue;
    }
    if (slots > 0)
      arguments.state = state.subspan(begin, (slots - 1) * elements_ + n);
    arguments.stride = elements_;
    if (apart_)
      arguments.moment = how.moment.subspan(begin, n);
    arguments.moment_step = how.moment_step;
    arguments.look_ahead = how.look_ahead;
    arguments.rate = rate * own.rate_scale;
    arguments.scale = mean * how.factor;
    arguments.step = updates_ + 1;
    update(own.rule, arguments);
  }
}

} // namespace troupe
