#include "apps/troupe/bench/gpu_runner.hpp"

#include "apps/troupe/bench/gpu_timing.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/updates.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace troupe::bench {

std::shared_ptr<const plan> gpu_training_plan(const work& what, dtype precision, bool whole) {
  auto options = cuda::gpu_plan_options();
  options.max_rows = what.batch;
  options.precision = precision;
  if (whole)
    options.bucket_bytes = std::numeric_limits<std::size_t>::max();
  return training_plan(what, options);
}

gpu_runner::gpu_runner(cuda::device& gpu, const work& what, dtype precision, const material& data)
  : gpu_(gpu), what_(what), data_(data), features_(gpu, data.features.size()),
    executor_(gpu, gpu_training_plan(what, precision, true)),
    state_(gpu, data.weights.size() * what.rule.slots()) {
  std::ranges::copy(data.features, features_.data());
  for (const auto& entry : data.parameters.entries())
    pointers_.push_back(data.weights.data() + entry.offset);
  cuda::fill_zero(executor_.where(), state_.size(), state_.data());
}

std::array<feed<float>, 2> gpu_runner::feeds(std::size_t batch) const {
  auto result = feeds_of(what_, data_, batch);
  if (features_.size() > 0)
    result[0] = feed<float>{features_.data() + batch * what_.batch * what_.inputs};
  return result;
}

double gpu_runner::step() {
  const auto now = feeds(steps_ % batches);
  const auto next = feeds((steps_ + 1) % batches);
  run_arguments<float> arguments;
  arguments.rows = what_.batch;
  arguments.feeds = now;
  arguments.batch = steps_ + 1;
  arguments.next = {steps_ + 2, what_.batch, next};
  if (steps_ == 0)
    arguments.weights = pointers_;
  const auto result = executor_.run(arguments);
  const auto samples = static_cast<double>(what_.batch);
  ++steps_;
  const auto weights = executor_.weights();
  update_arguments<float> update_of_all{
    weights, executor_.gradient(), {state_.data(), state_.size()}, weights};
  update_of_all.rate = what_.rate;
  update_of_all.scale = 1 / samples;
  update_of_all.step = steps_;
  update_of_all.stride = weights.size();
  cuda::update(executor_.where(), what_.rule, update_of_all, nullptr);
  return result.loss / samples;
}

round gpu_runner::run(std::size_t steps) {
  round result;
  result.losses.reserve(steps);
  result.seconds = seconds_of(gpu_, [&] {
    for (std::size_t i = 0; i < steps; ++i)
      result.losses.push_back(step());
  });
  return result;
}

} // namespace troupe::bench
