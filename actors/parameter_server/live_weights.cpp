#include "actors/parameter_server/live_weights.hpp"

#include "kernels/relaxed_floats.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

live_weights::live_weights(const job_context& context, range where)
  : where_(where), values_(where.size()) {
  context.initialize(where, values_);
}

void live_weights::restore(std::span<const float> weights, std::uint64_t samples,
                           std::uint64_t updates) {
  std::ranges::copy(weights, values_.begin());
  samples_ = samples;
  updates_ = updates;
}

void live_weights::read(std::span<float> out) noexcept {
  relaxed_copy(values_, out);
}

live_writer::live_writer(const job_context& context, std::shared_ptr<live_weights> weights)
  : weights_(std::move(weights)), updater_(context, weights_->where()),
    before_(weights_->where().size()), after_(before_.size()) {}

void live_writer::update(std::span<const float> gradient, std::uint64_t samples, double factor) {
  weights_->read(before_);
  updater_.restore(weights_->samples_.fetch_add(samples, std::memory_order_relaxed), 0);
  updater_.apply(before_, gradient, samples, after_, factor);
  relaxed_move(weights_->values_, before_, after_);
  weights_->updates_.fetch_add(1, std::memory_order_relaxed);
}

} // namespace troupe
