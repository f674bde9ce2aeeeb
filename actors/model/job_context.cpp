#include "actors/model/job_context.hpp"

#include "actors/model/job_file.hpp"
#include "actors/model/optimizer_builder.hpp"
#include "kernels/initializers.hpp"

#include <algorithm>

namespace troupe {

void job_context::initialize(range part, std::span<float> out) const {
  troupe::initialize(parameters(), part, job.seed(), out);
}

range job_context::shard(std::size_t index, std::size_t count) const {
  return part_of(parameters().size(), count, index);
}

std::vector<range> job_context::buckets() const {
  std::vector<range> result;
  for (auto& x : training->buckets())
    result.push_back(x.elements);
  return result;
}

std::shared_ptr<const job_context> make_job_context(const proto::Job& job, const data_shape& data) {
  auto result = std::make_shared<job_context>();
  result->job = job;
  result->hash = job_hash(job);
  result->data = data;
  result->model = build_model(job.model(), data);
  plan_options options;
  options.max_rows = job.data().batch();
  options.loss = result->model.loss;
  options.gradients = true;
  options.bucket_bytes = job.runtime().bucket_bytes();
  result->training = std::make_shared<plan>(*result->model.graph, options);
  result->rule = build_optimizer(job.optimizer());
  result->rate = build_learning_rate(job);
  return result;
}

range_updater::range_updater(const job_context& context, std::size_t elements)
  : rule_(context.rule), rate_(context.rate), train_records_(context.data.train_records),
    elements_(elements), state_(memory_bytes(context, elements) / sizeof(float)) {}

std::span<const float> range_updater::state(std::size_t slot) const {
  return std::span{state_}.subspan(slot * elements_, elements_);
}

void range_updater::restore(std::size_t slot, std::span<const float> values) {
  const auto where = std::span{state_}.subspan(slot * elements_, elements_);
  std::copy_n(values.begin(), where.size(), where.begin());
}

void range_updater::apply(std::span<const float> weights, std::span<const float> gradient,
                          std::uint64_t samples, std::span<float> updated) {
  samples_ += samples;
  update_arguments<float> arguments;
  arguments.weights = weights;
  arguments.gradient = gradient;
  arguments.state = state_;
  arguments.updated = updated;
  arguments.rate = rate_.at(static_cast<double>(samples_) / static_cast<double>(train_records_));
  arguments.scale = 1.0 / static_cast<double>(samples);
  arguments.step = ++updates_;
  update(rule_, arguments);
}

} // namespace troupe
