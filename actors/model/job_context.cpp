#include "actors/model/job_context.hpp"

#include "actors/model/measures.hpp"

#include "actors/model/job_file.hpp"
#include "kernels/cpu/executor.hpp"
#include "kernels/cpu/reduce.hpp"
#include "kernels/error.hpp"
#include "kernels/graph/initializers.hpp"
#include "kernels/graph/placement.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// Throws input_error if a batch normalization gets only one number per channel (one sample, with
/// one element per channel), because all its results would be 0.
void check_normalization(const job_context& x) {
  if (x.batch() > 1)
    return;
  const auto& nodes = x.model.graph->nodes();
  for (const auto& node : nodes) {
    // node.key is not 0 if the moments are computed over the batches of all workers.
    if (node.op != operation::channel_moments || node.key != 0)
      continue;
    const auto& read = nodes[node.inputs[0]];
    if (read.shape.elements(1) == static_cast<std::size_t>(read.shape[1]))
      throw input_error("data.batch: 1 sample, but batch normalization of " + to_string(read.shape)
                        + " then has one number per channel, and all its results are 0; "
                          "expected at least 2");
  }
}

/// Throws input_error if the model has no parameters to train. (parameter_choice::check() refuses
/// models whose parameters are all frozen.)
void require_parameters(const job_context& x) {
  if (std::ranges::any_of(x.model.graph->parameters().entries(), [](const layout_entry& tensor) {
        return tensor.kind == parameter_kind::trainable;
      }))
    return;
  throw input_error(x.job.model().has_onnx_structure()
                      ? "model.onnx: the model has no parameters to train"
                      : "model.layer: the layers have no parameters to train; add a layer that "
                        "has some, such as dense");
}

} // namespace

void job_context::initialize(range part, std::span<float> out) const {
  troupe::initialize(parameters(), part, job.seed(), out, orthogonal_.get());
}

std::vector<range> job_context::shards(std::size_t count) const {
  const bool whole = rule.by_tensor() || job.placement() == proto::BY_TENSOR;
  return whole ? cut_at_tensors(parameters(), count) : cut_at_rows(parameters(), count);
}

plan_options job_context::training_options(const fusion_table& fusion) const {
  plan_options result;
  result.max_rows = batch();
  result.loss = model.training_loss;
  result.gradients = true;
  result.bucket_bytes = job.runtime().bucket_bytes();
  result.precision = job.precision() == proto::BFLOAT16 ? dtype::bfloat16
    : job.precision() == proto::FLOAT16                 ? dtype::float16
                                                        : dtype::float32;
  result.scale_loss = job.precision() == proto::FLOAT16;
  result.fusion = &fusion;
  return result;
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
  require_parameters(*result);
  check_normalization(*result);
  check_measures(job, data, result->model);
  result->training =
    std::make_shared<plan>(*result->model.graph, result->training_options(cpu_fusion()));
  result->rule = build_optimizer(job.optimizer());
  result->groups = build_groups(job.optimizer(), result->parameters());
  result->rate = build_learning_rate(job);
  return result;
}

bool updates_rows(const job_context& context) {
  const auto& tables = context.training->row_sparse_gradients();
  return !tables.empty() && !context.job.has_moving_average()
    && std::ranges::all_of(tables, [&](auto& x) {
         const auto kind = context.parameters().entries()[x.parameter].kind;
         return kind == parameter_kind::frozen
           || context.rule_of(x.parameter).rule.keeps_zero_gradients();
       });
}

updater_sizes range_updater::sizes_of(const job_context& context, std::size_t elements,
                                      bool moment_apart) {
  const bool apart = moment_apart && context.rule.moment_slot();
  updater_sizes result{elements, context.rule.slots() - (apart ? 1 : 0), apart,
                       context.rule.by_tensor()};
  result.whole = !context.protocol.uses_shards() || !updates_rows(context);
  return result;
}

range_updater::range_updater(const job_context& context, range where, bool moment_apart,
                             const updater_maker& on, bool gradient_there, bool in_ring)
  : rate_(context.rate), train_records_(context.data.train_records),
    apart_(moment_apart ? context.rule.moment_slot() : std::nullopt) {
  const auto& tensors = context.parameters().entries();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& tensor = tensors[i];
    const auto common = intersect(tensor.elements(), where);
    if (common.empty())
      continue;
    const range here{common.begin - where.begin, common.end - where.begin};
    const bool trainable = tensor.kind == parameter_kind::trainable;
    const auto [rule, scale] = context.rule_of(i);
    if (trainable && !rule.by_tensor() && !parts_.empty()
        && parts_.back().kind == parameter_kind::trainable && parts_.back().rule == rule
        && rate_scales_.back() == scale) {
      parts_.back().where.end = here.end;
      continue;
    }
    parts_.push_back({here, tensor.kind, rule, 0, tensor.decay});
    rate_scales_.push_back(scale);
  }
  auto sizes = sizes_of(context, where.size(), moment_apart);
  sizes.gradient_there = gradient_there;
  sizes.in_ring = in_ring;
  sizes.norm_parts = norm_parts_of(context.parameters(), where);
  device_ = on ? on(sizes) : make_cpu_updater(sizes);
}

void range_updater::apply(std::span<const float> weights, std::span<const float> gradient,
                          std::uint64_t samples, std::span<float> updated, const terms& how) {
  device_->apply(arguments_of(weights, gradient, samples, updated, how));
  samples_ += samples + how.others;
  ++updates_;
}

void range_updater::stage(std::span<const float> weights, std::span<const float> gradient,
                          std::uint64_t samples, std::span<float> updated, const terms& how) {
  if (samples > 0)
    device_->stage(arguments_of(weights, gradient, samples, updated, how));
  else
    std::ranges::copy(weights, updated.begin());
  staged_ = staged{samples, how.others};
}

device_replica::staged_update range_updater::prepare(std::uint64_t samples, const terms& how) {
  staged_ = staged{samples, how.others};
  return {device_.get(), arguments_of({}, {}, samples, {}, how)};
}

void range_updater::publish() noexcept {
  if (!staged_)
    return;
  if (staged_->samples > 0)
    device_->publish();
  samples_ += staged_->samples + staged_->others;
  ++updates_;
  staged_.reset();
}

range_update range_updater::arguments_of(std::span<const float> weights,
                                         std::span<const float> gradient, std::uint64_t samples,
                                         std::span<float> updated, const terms& how) {
  const double middle =
    static_cast<double>(samples_) + static_cast<double>(samples + how.others) / 2;
  const double rate = how.rate_factor * rate_.at(middle / static_cast<double>(train_records_));
  for (std::size_t i = 0; i < parts_.size(); ++i)
    parts_[i].rate = rate * rate_scales_[i];
  range_update result;
  result.weights = weights;
  result.gradient = gradient;
  result.updated = updated;
  result.parts = parts_;
  result.mean = 1.0 / static_cast<double>(samples);
  result.scale = result.mean * how.factor;
  result.step = updates_ + 1;
  result.moment = how.moment;
  result.moment_step = how.moment_step;
  result.look_ahead = how.look_ahead;
  result.only = how.only;
  const bool by_tensor = std::ranges::any_of(parts_, [](auto& x) { return x.rule.by_tensor(); });
  if (device_->adds_up() && !by_tensor) {
    result.addend = how.addend;
    result.finite = how.finite;
    return result;
  }
  if (!how.addend.empty()) {
    sum_.resize(gradient.size());
    add(gradient, how.addend, sum_);
    result.gradient = sum_;
  }
  if (how.finite != nullptr && !all_finite(result.gradient))
    *how.finite = false;
  return result;
}

} // namespace troupe
