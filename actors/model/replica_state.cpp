#include "actors/model/replica_state.hpp"

#include "actors/model/moving_average.hpp"

#include <algorithm>

namespace troupe {

bool divides_state(const job_context& context, std::size_t workers) {
  return workers > 1 && context.job.ring().shard_optimizer();
}

residence residence_of(const job_context& context, std::size_t workers, bool in_ring) {
  const auto& protocol = context.protocol;
  const auto& job = context.job;
  if (!protocol.replica_on_gpu || divides_state(context, workers) || context.rule.by_tensor()
      || job.has_moving_average())
    return residence::host;
  const bool apart = static_cast<bool>(protocol.steps_between_waits);
  const bool summed = workers > 1 && !in_ring;
  const bool needed = (!apart && summed) || job.exchange_precision() == proto::BFLOAT16;
  return needed ? residence::weights_on_gpu : residence::gradients_on_gpu;
}

bool adds_on_gpus(const job_context& context, std::size_t workers) {
  return context.protocol.adds_on_gpus
    && residence_of(context, workers) == residence::weights_on_gpu
    && residence_of(context, workers, true) == residence::gradients_on_gpu;
}

std::vector<range> replica_parts(const job_context& context, std::size_t workers) {
  if (!divides_state(context, workers))
    return split_evenly(context.parameters().size(), workers);
  auto buckets = context.buckets();
  std::ranges::sort(buckets, {}, &range::begin);
  std::vector<range> result;
  for (auto& bucket : buckets)
    for (auto& part : split_evenly(bucket.size(), workers))
      result.push_back({bucket.begin + part.begin, bucket.begin + part.end});
  return result;
}

std::size_t outer_vectors(const proto::Job& job) {
  const auto& x = job.local_sgd();
  return !x.has_outer() ? 0 : x.outer().kind() == proto::OuterOptimizer::SGD ? 1 : 2;
}

std::vector<std::string> state_names(const job_context& context, std::size_t workers) {
  const auto slots = context.rule.slot_names();
  std::vector<std::string> result{slots.begin(), slots.end()};
  if (context.job.has_moving_average())
    result.emplace_back(moving_average_name);
  if (outer_vectors(context.job) > 1)
    result.emplace_back("outer_momentum");
  const auto own = own_states(context, workers);
  for (std::size_t i = 0; i < own; ++i)
    result.push_back(own_state(context, i / slots.size(), i % slots.size()));
  return result;
}

// Each worker has its own optimizer if the workers hold the weights and do not wait for each other
// in each step.
std::size_t own_states(const job_context& context, std::size_t workers) {
  const auto& protocol = context.protocol;
  const bool apart = !protocol.uses_shards() && protocol.steps_between_waits;
  return apart && workers > 1 ? workers * context.rule.slots() : 0;
}

std::string own_state(const job_context& context, std::size_t rank, std::size_t slot) {
  return "worker_" + std::to_string(rank) + '/' + std::string{context.rule.slot_names()[slot]};
}

} // namespace troupe
