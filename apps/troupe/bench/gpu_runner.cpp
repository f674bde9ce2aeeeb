#include "apps/troupe/bench/gpu_runner.hpp"

#include "apps/troupe/bench/gpu_timing.hpp"
#include "kernels/cuda/gpu_executor.hpp"
#include "kernels/devices/device_replica.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

namespace troupe::bench {

std::shared_ptr<const plan> gpu_training_plan(const work& what, dtype precision) {
  auto options = cuda::gpu_plan_options();
  options.max_rows = what.batch;
  options.precision = precision;
  return training_plan(what, options);
}

gpu_runner::gpu_runner(cuda::device& gpu, const work& what, dtype precision, const material& data)
  : gpu_(gpu), what_(what), data_(data), features_(gpu, data.features.size()),
    // The updaters use the device of the caller, and do not own it.
    replica_(std::make_shared<cuda::replica_memory>(
      std::shared_ptr<cuda::device>(std::shared_ptr<cuda::device>{}, &gpu))),
    executor_(gpu, gpu_training_plan(what, precision)) {
  std::ranges::copy(data.features, features_.data());
  replica_->gradient = executor_.gradient().data();
  for (const auto& x : executor_.what().buckets()) {
    const auto where = x.elements;
    const updater_sizes sizes{
      .elements = where.size(), .slots = what.rule.slots(), .gradient_there = true};
    auto& added = buckets_.emplace_back();
    added.parts = {{{0, where.size()}, parameter_kind::trainable, what.rule, what.rate, 0}};
    added.updates = std::make_unique<cuda::updater>(replica_, where.begin, sizes);
    added.updates->reserve_stage();
    added.updates->write_weights(std::span{data.weights}.subspan(where.begin, where.size()));
  }
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
  cuda::copy_newest_weights(gpu_, executor_, *replica_);
  const auto result = executor_.run(arguments);
  const auto samples = static_cast<double>(what_.batch);
  ++steps_;
  std::vector<device_replica::staged_update> all;
  for (const auto& x : buckets_) {
    range_update how;
    how.parts = x.parts;
    how.scale = 1 / samples;
    how.step = steps_;
    all.push_back({x.updates.get(), how});
  }
  cuda::updater::stage_all(all);
  for (const auto& x : buckets_)
    x.updates->publish();
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
